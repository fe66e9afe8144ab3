from multistable.networks import *
from multistable.cells import *
