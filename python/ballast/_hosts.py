"""What the plugins for other servers share: the hosts' versions, shapes of models, a folder."""
from __future__ import annotations

import importlib.metadata
import logging
import os
import tempfile
from pathlib import Path
from typing import Any, Iterator, Optional, Union

from ._ballast import Codec, Shape

#: Releases of the hosts that the plugins were tried with.
HOSTS = {"lmcache": "0.5.6", "vllm": "0.32.0", "sglang": "0.5.23"}

#: Model types whose rotary embedding turns elements 2i and 2i + 1; others turn halves.
_PAIRS = {"chatglm", "codegen", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "glm", "glm4",
          "gptj", "llama4_text"}


def check_host(plugin: str, *names: str) -> None:
    """Raises ImportError unless one of the packages `names` has the release that HOSTS names."""
    wanted = HOSTS[names[0]]
    for name in names:
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if found.split("+")[0] == wanted:
            return
        raise ImportError(f"{plugin} is made for {name} {wanted}, and {found} is installed: the "
                          f"interface changes between releases; pip install {name}=={wanted}")
    raise ImportError(f"{plugin} needs {names[0]} {wanted}, which is not installed")


def register_lmcache() -> None:
    """The entry point: makes LMCache know the serde "ballast" where the release fits."""
    try:
        check_host("ballast.lmcache", "lmcache")
    except ImportError:
        return  # it is not there, or ballast.lmcache says what is wrong once it is asked for
    from . import lmcache  # noqa: F401, registers itself


class ModelShape:
    """What a codec must know of a model, from its Hugging Face configuration.

    config: a folder or name that transformers knows, or a configuration.
    """

    def __init__(self, config: Any) -> None:
        if isinstance(config, str):
            from transformers import AutoConfig
            config = AutoConfig.from_pretrained(config)
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.layers: int = text.num_hidden_layers
        self.kv_heads: int = (getattr(text, "num_key_value_heads", None)
                              or text.num_attention_heads)
        self.head_dim: int = (getattr(text, "head_dim", None)
                              or text.hidden_size // text.num_attention_heads)
        self.pairs = text.model_type in _PAIRS
        self.rotations = _rotations(text, self.layers, self.head_dim)

    def codec(self, preset: str, model: str, layers: Optional[range] = None,
              kv_heads: Optional[int] = None, basis: str = "") -> Codec:
        """For some of the layers, and a rank's part of the heads. basis: a file, for "pack-…"."""
        some = self.rotations if layers is None else [self.rotations[i] for i in layers]
        same = all(r == some[0] for r in some)
        shape = Shape(layers=len(some), kv_heads=kv_heads or self.kv_heads, key_dim=self.head_dim,
                      rotary_frequencies=some[0] if same else [], rotary_pairs=self.pairs,
                      rotations=[] if same else some)
        return Codec(shape, preset, model, basis)


def _rotations(text: Any, layers: int, head_dim: int) -> list[list[float]]:
    """The frequencies of each layer, radians per position."""
    parameters = getattr(text, "rope_parameters", None)
    if parameters is None:  # transformers before 5
        scaling = getattr(text, "rope_scaling", None) or {}
        parameters = {"rope_theta": getattr(text, "rope_theta", 10000.0), **scaling}
    if all(isinstance(p, dict) for p in parameters.values()) and parameters:
        of = {kind: _frequencies(text, p, head_dim, kind) for kind, p in parameters.items()}
        out = [of[kind] for kind in text.layer_types]
    else:
        out = [_frequencies(text, parameters, head_dim, None)] * layers
    rotates = getattr(text, "no_rope_layers", None) or [1] * layers
    return [r if rotates[i] else [] for i, r in enumerate(out)]


def _frequencies(text: Any, parameters: dict[str, Any], head_dim: int, kind: Union[None, str]
                 ) -> list[float]:
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type not in ("default", "mrope"):
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        more = {} if kind is None else {"layer_type": kind}
        return [float(f) for f in ROPE_INIT_FUNCTIONS[rope_type](text, "cpu", **more)[0]]
    part = parameters.get("partial_rotary_factor", getattr(text, "partial_rotary_factor", None))
    dim = int(head_dim * (1.0 if part is None else part))
    theta = float(parameters.get("rope_theta", 10000.0))
    return [theta ** (-2 * i / dim) for i in range(dim // 2)]


class Folder:
    """Chunks as files. Each appears whole or not at all; all that fails is a line in the log."""

    def __init__(self, path: str, size: int, logger: logging.Logger) -> None:
        """size: bytes, beyond which the chunks that were not used for longest go; 0: no limit."""
        self.path = Path(path)
        self._size = size
        self._logger = logger
        self._used: Optional[int] = None
        self._said: set[str] = set()

    def _file(self, name: str) -> Path:
        return self.path / name[:2] / name

    def has(self, name: str) -> bool:
        return self._file(name).exists()

    def read(self, name: str) -> Optional[bytes]:
        try:
            out = self._file(name).read_bytes()
        except OSError as error:
            self._logger.warning("ballast: %s", error)
            return None
        try:
            os.utime(self._file(name))  # used now
        except OSError:
            pass  # a folder that is only read
        return out

    def write(self, name: str, chunk: bytes) -> bool:
        """Whether the chunk is kept."""
        file = self._file(name)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._make_room(len(chunk))
            handle, temporary = tempfile.mkstemp(dir=file.parent, prefix="part-")
            try:
                with os.fdopen(handle, "wb") as out:
                    out.write(chunk)
                os.replace(temporary, file)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            text = os.strerror(error.errno or 0)
            if text not in self._said:  # once: a full disk stays full
                self._logger.warning("ballast: chunks are not kept: %s: %s", file.parent, text)
            self._said.add(text)
            return False
        return True

    def remove(self, name: str) -> None:
        try:
            self._file(name).unlink()
        except OSError:
            pass

    def clear(self) -> None:
        for _, _, path in list(self._files()):
            Path(path).unlink(missing_ok=True)
        self._used = None

    def _files(self) -> Iterator[tuple[float, int, str]]:
        for folder in os.scandir(self.path):
            for file in os.scandir(folder.path) if folder.is_dir() else ():
                status = file.stat()
                yield status.st_mtime, status.st_size, file.path

    def _make_room(self, size: int) -> None:
        if self._size == 0:
            return
        if self._used is None:
            self._used = sum(used for _, used, _ in self._files())
        self._used += size
        if self._used <= self._size:
            return
        files = sorted(self._files())
        self._used = sum(used for _, used, _ in files) + size
        for _, used, path in files:  # to nine tenths, so that not every chunk looks at all files
            if self._used <= self._size * 9 // 10:
                break
            Path(path).unlink(missing_ok=True)
            self._used -= used
