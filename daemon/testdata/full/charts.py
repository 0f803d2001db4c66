import warnings

import matplotlib.pyplot as plt, numpy as np, pandas as pd, seaborn, altair, graphviz, holoviews, \
    hvplot.pandas, wordcloud
from bokeh.embed import file_html
from bokeh.plotting import figure
from bokeh.resources import INLINE
from PIL import Image

frame = pd.DataFrame({"x": [1, 2, 3], "y": [2, 4, 9]})


def picture(path):
    with Image.open(path) as i:
        assert i.size[0] > 100 and len(set(i.convert("L").getdata())) > 10, path


plt.figure()
axes = plt.subplot(projection="3d")
axes.plot([1, 2], [3, 4], [5, 6])
seaborn.set_theme()  # it sets a list of fonts without those of other scripts
plt.title("ä 漢字 한국어 العربية हिन्दी ไทย 😀")
with warnings.catch_warnings():
    warnings.filterwarnings("error", ".*missing from.*")
    plt.savefig("matplotlib.png")
picture("matplotlib.png")
plt.figure()
seaborn.scatterplot(frame, x="x", y="y").figure.savefig("seaborn.png")
picture("seaborn.png")
altair.Chart(frame).mark_line().encode(x="x", y="y").save("altair.png")
picture("altair.png")
wordcloud.WordCloud().generate("one two three four five").to_file("words.png")
picture("words.png")
graphviz.Digraph(body=["a -> b"], format="png").render("graph")
Image.open("graph.png").verify()

p = figure()
p.line([1, 2], [3, 4])
page = file_html(p, INLINE)  # nothing that a browser would have to fetch
assert "cdn.bokeh" not in page and len(page) > 500_000
drawn = holoviews.render(frame.hvplot.line(x="x", y="y"))
assert "x" in str(drawn.xaxis[0].axis_label)
holoviews.extension("matplotlib")
holoviews.save(holoviews.Curve([1, 4, 9]), "curve.png")
picture("curve.png")
