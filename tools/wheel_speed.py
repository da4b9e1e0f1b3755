"""Print CPU seconds of four tasks with the bonsai-xmc of this Python, as JSON. Run by `tools/wheels.py`."""

import json
import time

from bonsai_xmc import Bonsai, TextVectorizer, datasets

data = datasets.make_xmc("eurlex-4k", scale=0.3)
texts = datasets.make_texts(20_000, n_test=10).texts_train


def seconds(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


trees = Bonsai.preset("bonsai-i", n_jobs=1, threshold=0.5)
one_vs_rest = Bonsai(classifiers="one_vs_rest", n_jobs=1, threshold=0.5)
tasks = (
    lambda: trees.fit(data.X_train, data.Y_train),
    lambda: one_vs_rest.fit(data.X_train, data.Y_train),
    lambda: [TextVectorizer(word_ngrams=1, n_jobs=1).fit_transform(texts) for _ in range(10)],
    lambda: [model.top_k(data.X_train) for model in (trees, one_vs_rest) for _ in range(3)],
)
print(json.dumps([seconds(task) for task in tasks]))
