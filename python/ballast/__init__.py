"""Small, accurate key-value caches for language models.

    import ballast, numpy as np
    shape = ballast.Shape(layers=32, kv_heads=8, queries_per_kv_head=4, key_dim=128)
    cache = ballast.Cache(shape, method="balancekv:rate=0.25")
    out = cache.forward(layer, keys, values, queries)  # (tokens, heads, dim); appends the tokens
    cache.finish_prompt()                              # the prompt has ended: summarize it

Cache and attention work on NumPy arrays and PyTorch tensors as they lie in memory. Model runs GGUF
files and Hugging Face folders. Method is for methods of your own, evaluate() for experiments with
them.
"""
from ._ballast import Answer, Cache, Codec, Shape, __version__, set_threads, threads
from .caches import Kept, Segment, attention
from .errors import ArgumentError, Error, FileError, OutOfMemoryError
from .experiments import Records, evaluate
from .libraries import Library, LibraryAnswer
from .methods import Block, Method, MethodInfo, methods, register_method
from .models import Context, Model

__all__ = [
    "Answer", "ArgumentError", "Block", "Cache", "Codec", "Context", "Error", "FileError", "Kept",
    "Library", "LibraryAnswer", "Method", "MethodInfo", "Model", "OutOfMemoryError", "Records", "Segment", "Shape",
    "__version__", "attention", "evaluate", "methods", "register_method", "set_threads", "threads",
]
