import nltk, regex, onnxruntime, numpy as np
from bs4 import BeautifulSoup
from lxml import etree
from markdownify import markdownify
from nltk.stem import PorterStemmer
from nltk.tokenize import wordpunct_tokenize
from tokenizers import Tokenizer, models, trainers

page = "<html><body><h1>Hello</h1><p>big <b>world</b></p><ul><li>one</li></ul></body></html>"
for parser in "html.parser", "lxml":
    assert BeautifulSoup(page, parser).b.text == "world"
assert etree.fromstring("<a><b>1</b></a>").xpath("number(//b)") == 1
assert "**world**" in markdownify(page)
words = wordpunct_tokenize("The runners were running, and ran.")
assert PorterStemmer().stem("running") == "run" and nltk.FreqDist(words)[","] == 1
assert regex.findall(r"\p{Devanagari}+", "a हिन्दी b")

t = Tokenizer(models.BPE())
t.train_from_iterator(["low lower lowest newer newest"] * 20, trainers.BpeTrainer(vocab_size=60))
assert t.decode(t.encode("lowest").ids).replace(" ", "") == "lowest"

# A model of one matrix, written by hand as the format's messages: numbered fields with their lengths.
def field(n, kind, value):
    if kind == "int":
        return bytes([n << 3, value])
    return bytes([n << 3 | 2, len(value)]) + value


def shape(name):
    dims = b"".join(field(1, "msg", field(1, "int", 2)) for _ in range(2))
    return field(1, "str", name) + field(2, "msg", field(1, "msg", field(1, "int", 1) + field(2, "msg", dims)))


node = field(1, "str", b"x") + field(1, "str", b"x") + field(2, "str", b"y") + field(4, "str", b"MatMul")
graph = field(1, "msg", node) + field(2, "str", b"g") + field(11, "msg", shape(b"x")) + field(12, "msg", shape(b"y"))
model = field(1, "int", 8) + field(7, "msg", graph) + field(8, "msg", field(2, "int", 13))
x = np.array([[1, 2], [3, 4]], dtype=np.float32)
assert np.array_equal(onnxruntime.InferenceSession(model).run(None, {"x": x})[0], x @ x)
