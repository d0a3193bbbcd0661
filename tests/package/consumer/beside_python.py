"""PyTorch and Triton in the same process: imported first and used before and after. Argument: the file of `attention`.
Exit status 77 where one of them cannot be imported."""
import ctypes
import sys

try:
    import torch
    import triton
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def torch_works():
    a = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    return torch.equal(a @ a.T, torch.tensor([[5.0, 14.0], [14.0, 50.0]]))


assert torch_works()
assert ctypes.CDLL(sys.argv[1]).attention_is_right() == 0
assert torch_works()
print(f"1 process beside PyTorch {torch.__version__} and Triton {triton.__version__}: right")
