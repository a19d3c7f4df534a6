"""The model: a Qwen 2 decoder (biases on query, key and value; grouped queries; rotary halves), wide and shallow."""

import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn

import fused


@dataclasses.dataclass
class Shape:
    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 256
    rotary_base: float = 1e7
    epsilon: float = 1e-6
    context: int = 16384

    head: int = 64

    @property
    def kv_width(self):
        return self.kv_heads * self.head


def rotary_frequencies(shape, device=None):
    half = shape.head // 2
    return shape.rotary_base ** (-torch.arange(half, dtype=torch.float64, device=device) / half)


def rotary_table(shape, positions):
    """Cosines and sines of every position, shape [..., head / 2]."""
    angles = positions.double()[..., None] * rotary_frequencies(shape, positions.device)
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    """x: [batch, length, heads, head]; pairs are (i, i + head / 2)."""
    first, second = x.float().chunk(2, dim=-1)  # bfloat16 angles would blur neighbouring positions
    cos, sin = cos[:, :, None], sin[:, :, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def attention(qkv, cos, sin, shape):
    """Causal attention of one packed projection [batch, length, width + 2 kv_width]."""
    if fused.usable(qkv):
        return fused.attention(qkv, cos, sin, shape.heads, shape.kv_heads)
    batch, length, _ = qkv.shape
    q, k, v = qkv.split((shape.width, shape.kv_width, shape.kv_width), dim=-1)
    q = rotate(q.reshape(batch, length, shape.heads, shape.head), cos, sin).transpose(1, 2)
    k = rotate(k.reshape(batch, length, shape.kv_heads, shape.head), cos, sin).transpose(1, 2)
    v = v.reshape(batch, length, shape.kv_heads, shape.head).transpose(1, 2)
    group = shape.heads // shape.kv_heads
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    if hasattr(F, "scaled_dot_product_attention"):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        mask = torch.full((length, length), float("-inf"), device=q.device).triu(1)
        out = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(shape.head) + mask, dim=-1) @ v
    return out.transpose(1, 2).reshape(batch, length, shape.width)


class Linear(nn.Linear):
    def forward(self, x):
        return fused.linear(x, self.weight, self.bias)


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        if fused.usable(x):
            return fused.norm(x, self.weight, self.epsilon)
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.epsilon)
        return (x.float() * scale).to(x.dtype) * self.weight.to(x.dtype)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.attention_norm = Norm(shape.width, shape.epsilon)
        self.qkv = Linear(shape.width, shape.width + 2 * shape.kv_width)
        self.output = Linear(shape.width, shape.width, bias=False)
        self.hidden_norm = Norm(shape.width, shape.epsilon)
        self.gate_up = Linear(shape.width, 2 * shape.hidden, bias=False)
        self.down = Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.output(attention(self.qkv(self.attention_norm(x)), cos, sin, self.shape))
        both = self.gate_up(self.hidden_norm(x))
        if fused.usable(both):
            mixed = fused.gate(both)
        else:
            gate, up = both.chunk(2, dim=-1)
            mixed = F.silu(gate) * up
        return x + self.down(mixed)


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.width, shape.epsilon)

    def forward(self, ids, positions, wanted=None):
        """ids, positions: [batch, length]. Logits [batch, length, vocabulary], or of the `wanted` tokens (a mask) only,
        [count, vocabulary]."""
        cos, sin = rotary_table(self.shape, positions)
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        if wanted is not None:
            x = x[wanted]
        return fused.linear(self.norm(x), self.embedding.weight)


# For the two groups of a layer: the offset of the tokens that keys show, and of those that each head's query asks for;
# an answer often stands one token later, counted from the words that find it, than the question.
OFFSETS = (((1, (0, 2)), (2, (2, 1))), ((1, (0, 1)), (2, (2, 3))), ((1, (0, 0)), (3, (2, 3))))


@torch.no_grad()
def initialise(model, seed=1, offset_sharpness=9.0, match=1.8, copy=1.0, carry=0.8, far=0.5):
    """A start from which retrieval is learned quickly; training changes all of it.

    The first layer's heads look back by 1, 2, 3 and 4 tokens: a constant key bias, and as query bias the same vector
    rotated by the offset. They write one projection of the token found into a subspace for each offset. The heads of
    the other layers start with queries and keys that read the same projection of the token itself and of those
    subspaces (W_Q W_K^T near an identity between recent tokens), and with W_V W_O near a projection, so that they
    attend to places with a similar past and copy what stands there. After Trockman and Kolter, "Mimetic
    initialization of self-attention layers", 2023.
    """
    shape = model.shape
    random = torch.Generator().manual_seed(seed)

    def normal(*size, scale):
        return torch.randn(*size, generator=random) * scale

    def orthogonal(size):
        return torch.linalg.qr(normal(size, size, scale=1.0))[0]

    width, head, group = shape.width, shape.head, shape.heads // shape.kv_heads
    model.embedding.weight.copy_(normal(shape.vocabulary, width, scale=0.3))
    model.norm.weight.fill_(0.17)
    frequencies = rotary_frequencies(shape).float()
    slow = torch.nonzero(frequencies < 5e-4)[:, 0]
    # Most of the strength lies in the fast dimensions, which tell neighbours apart.
    strength = offset_sharpness * frequencies.clamp(min=0.02) ** 0.25
    strength[frequencies < 0.02] = 0.0
    token = orthogonal(width)[:head]
    spaces = orthogonal(width)
    reads = [token] + [spaces[:, h * head:(h + 1) * head].T for h in range(min(shape.heads, width // head))]

    def place(weight, h, compare, near, next_to_it):
        weight[h * head + slow] += compare[:len(slow)] @ near
        weight[h * head + slow + head // 2] += compare[:len(slow)] @ next_to_it

    for index, block in enumerate(model.blocks):
        block.qkv.bias.zero_()
        q = normal(width, width, scale=0.1 / math.sqrt(width))
        k = normal(shape.kv_width, width, scale=0.1 / math.sqrt(width))
        output = normal(width, width, scale=0.01)
        if index == 0:
            v = token.repeat(shape.kv_heads, 1)
            output += carry * spaces
            for h in range(shape.heads):
                angle = -(h + 1) * frequencies
                block.qkv.bias[h * head:(h + 1) * head] = torch.cat((strength * angle.cos(), strength * angle.sin()))
            for g in range(shape.kv_heads):
                start = width + g * head
                block.qkv.bias[start:start + head // 2] = strength
        else:
            v = orthogonal(width)[:shape.kv_width]
            for g in range(shape.kv_heads):
                # Only dimensions that hardly turn over the whole context compare content, half of them each of two
                # neighbouring tokens; the fast ones keep the head from finding its own place.
                compare = match * orthogonal(head)
                first, asked = OFFSETS[(index - 1) % len(OFFSETS)][g % 2]
                place(k, g, compare, reads[first], reads[first + 1])
                block.qkv.bias[width + g * head:width + g * head + head // 2] = far * strength
                for h in range(g * group, (g + 1) * group):
                    first = asked[h % len(asked)]
                    place(q, h, compare, reads[first], reads[first + 1])
                    block.qkv.bias[h * head:h * head + head // 2] = -far * strength
                    output[:, h * head:(h + 1) * head] += copy * v[g * head:(g + 1) * head].T
        block.qkv.weight.copy_(torch.cat((q, k, v)))
        block.output.weight.copy_(output)
        block.gate_up.weight.copy_(normal(2 * shape.hidden, width, scale=1.0 / math.sqrt(width)))
        block.down.weight.copy_(normal(width, shape.hidden, scale=0.02))
