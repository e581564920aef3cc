"""A small GPT: the model that train.py trains. Nothing here knows of Lowtide."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Attention and a small network, each behind a norm and beside a shortcut."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).chunk(3, dim=2)
        q, k, v = (part.unflatten(2, (-1, 32)).transpose(1, 2) for part in qkv)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attention.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """From token ids (batch, time) to logits (batch, time, vocabulary), or to their mean loss."""

    def __init__(self, vocabulary, block_size, layers, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(block_size, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, x, y=None):
        places = self.places(torch.arange(x.shape[1], device=x.device))
        logits = self.head(self.norm(self.blocks(self.tokens(x) + places)))
        return logits if y is None else F.cross_entropy(logits.flatten(0, 1), y.flatten())

    @torch.no_grad()
    def generate(self, ids, count):
        """Go on after these ids, by chance."""
        for _ in range(count):
            seen = torch.tensor([ids[-self.places.num_embeddings :]], device=self.places.weight.device)
            ids = [*ids, torch.multinomial((self(seen)[0, -1] / 0.8).softmax(0), 1).item()]
        return ids
