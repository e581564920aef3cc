//! NumPy's `.npy` header.
