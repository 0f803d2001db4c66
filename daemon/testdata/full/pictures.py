import subprocess
import cv2, imageio.v3 as iio, numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import filters, measure

image = Image.new("RGB", (200, 100), "white")
ImageDraw.Draw(image).ellipse((50, 20, 120, 80), fill="red")
for ending in "png", "jpg", "webp", "tiff", "gif", "avif":
    image.save(f"dot.{ending}")
    assert Image.open(f"dot.{ending}").size == (200, 100), ending

grey = cv2.cvtColor(cv2.imread("dot.png"), cv2.COLOR_BGR2GRAY)
outlines, _ = cv2.findContours(255 - grey, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
assert len(outlines) == 1 and abs(cv2.contourArea(outlines[0]) - np.pi * 35 * 30) < 200
assert measure.label(grey <= filters.threshold_otsu(grey)).max() == 1
iio.imwrite("turned.png", np.rot90(iio.imread("dot.png")))
assert Image.open("turned.png").size == (100, 200)

subprocess.run(["convert", "dot.png", "-resize", "50%", "-bordercolor", "blue", "-border", "5", "small.png"],
               check=True)
assert Image.open("small.png").size == (110, 60)
subprocess.run(["convert", "dot.png", "dot.pdf"], check=True)  # Debian's policy forbids it
subprocess.run(["convert", "-density", "72", "dot.pdf", "back.png"], check=True)
assert Image.open("back.png").size == (200, 100)
open("drawn.svg", "w").write('<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20">'
                             '<rect width="30" height="20" fill="red"/></svg>')
subprocess.run(["rsvg-convert", "-o", "drawn.png", "drawn.svg"], check=True)
assert Image.open("drawn.png").getpixel((5, 5))[:3] == (255, 0, 0)
