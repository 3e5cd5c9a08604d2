"""Environment variables that change numbers."""

from __future__ import annotations

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""Numbers of threads; the field ``threads`` of a profile sets all of them."""

ACCELERATE_THREADS = "VECLIB_MAXIMUM_THREADS"
"""The same for Accelerate, with which PyTorch and NumPy compute on macOS."""

MOST_THREADS = 1024
"""The largest number of threads that a profile, or a spec from elsewhere, may ask for."""

NUMERIC_VARIABLES = (
    *THREAD_VARIABLES,
    "MKL_DOMAIN_NUM_THREADS",
    # How many of the threads asked for really share a sum: the limit, and the machine's load.
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "MKL_DYNAMIC",
    "KMP_DYNAMIC_MODE",
    "KMP_HW_SUBSET",
    "KMP_DETERMINISTIC_REDUCTION",
    "KMP_FORCE_REDUCTION",
    ACCELERATE_THREADS,
    "ATEN_CPU_CAPABILITY",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT",
    "TORCH_LINALG_PREFER_CUSOLVER",
    "TORCH_LINALG_PREFER_MAGMA",
    "TORCH_CUDNN_V8_API_DISABLED",
    "PYTORCH_MPS_FAST_MATH",
    "PYTORCH_MPS_PREFER_METAL",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTHONHASHSEED",
)
"""Variables that change numbers: a profile decides all of them, the caller's shell none."""
