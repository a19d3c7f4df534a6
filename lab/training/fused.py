"""Calls the kernels of fused.c where the tensors are float32 on a CPU and a C compiler is at hand.

BALLAST_FUSED=0 turns them off, so that the two ways can be compared (test_training.py does)."""

import ctypes
import functools
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F

_SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fused.c")


@functools.lru_cache(None)
def _library():
    if os.environ.get("BALLAST_FUSED", "1") == "0":
        return None
    folder = tempfile.mkdtemp(prefix="ballast-fused-")
    path = os.path.join(folder, "fused.so")
    try:
        subprocess.run(["cc", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math", "-fopenmp", "-shared",
                        "-fPIC", _SOURCE, "-o", path, "-lm"], check=True)
        return ctypes.CDLL(path)
    except (OSError, subprocess.CalledProcessError):
        return None


def usable(x):
    return x.device.type == "cpu" and x.dtype == torch.float32 and _library() is not None


def _call(name, *arguments):
    def convert(a):
        if isinstance(a, torch.Tensor):
            assert a.is_contiguous() and a.dtype == torch.float32
            return ctypes.c_void_p(a.data_ptr())
        return ctypes.c_float(a) if isinstance(a, float) else ctypes.c_long(a)
    getattr(_library(), name)(*map(convert, arguments))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(context, qkv, cos, sin, heads, groups):
        qkv, cos, sin = qkv.contiguous(), cos.contiguous(), sin.contiguous()
        batch, length, _ = qkv.shape
        out = qkv.new_empty(batch, length, heads * 64)
        lse = qkv.new_empty(batch, heads, length)
        _call("AttentionForward", qkv, cos, sin, out, lse, batch, length, heads, groups)
        context.save_for_backward(qkv, cos, sin, out, lse)
        context.sizes = batch, length, heads, groups
        return out

    @staticmethod
    def backward(context, grad):
        qkv, cos, sin, out, lse = context.saved_tensors
        result = torch.empty_like(qkv)
        _call("AttentionBackward", qkv, cos, sin, out, lse, grad.contiguous(), result, *context.sizes)
        return result, None, None, None, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, epsilon):
        x = x.contiguous()
        y, inverse = torch.empty_like(x), x.new_empty(x.shape[:-1])
        _call("NormForward", x, weight, y, inverse, inverse.numel(), x.shape[-1], epsilon)
        context.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    def backward(context, grad):
        x, weight, inverse = context.saved_tensors
        x_grad, weight_grad = torch.empty_like(x), torch.zeros_like(weight)
        _call("NormBackward", x, weight, inverse, grad.contiguous(), x_grad, weight_grad, inverse.numel(), x.shape[-1])
        return x_grad, weight_grad, None


class _Linear(torch.autograd.Function):
    """Products in bfloat16 (twice the speed and more where the CPU multiplies it), sums and results in float32."""

    @staticmethod
    def forward(context, x, weight, bias):
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        small = weight.bfloat16()
        context.save_for_backward(rows, small)
        context.shape = x.shape
        context.has_bias = bias is not None
        y = (rows @ small.t()).float()
        return (y + bias if bias is not None else y).view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(context, grad):
        rows, weight = context.saved_tensors
        full = grad.reshape(-1, grad.shape[-1])
        small = full.bfloat16()
        bias = full.sum(0) if context.has_bias else None
        return (small @ weight).float().view(context.shape), (small.t() @ rows).float(), bias


@functools.lru_cache(None)
def _has_bfloat16():
    try:
        with open("/proc/cpuinfo") as file:
            return "avx512_bf16" in file.read()
    except OSError:
        return False


def linear(x, weight, bias=None):
    if torch.is_grad_enabled() and usable(x) and _has_bfloat16():
        return _Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(context, both):
        both = both.contiguous()
        hidden = both.shape[-1] // 2
        y = both.new_empty(*both.shape[:-1], hidden)
        _call("GateForward", both, y, y.numel() // hidden, hidden)
        context.save_for_backward(both)
        return y

    @staticmethod
    def backward(context, grad):
        both, = context.saved_tensors
        result = torch.empty_like(both)
        hidden = both.shape[-1] // 2
        _call("GateBackward", both, grad.contiguous(), result, grad.numel() // hidden, hidden)
        return result


attention = _Attention.apply
norm = _Norm.apply
gate = _Gate.apply
