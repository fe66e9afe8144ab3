"""The time loop on a GPU: Triton kernels that advance many recurrences over a whole sequence in one launch."""
