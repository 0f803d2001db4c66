import io, subprocess
import img2pdf, pdf2image, pdfplumber, pikepdf, pymupdf, pypdf, tabula
from pdfminer.high_level import extract_text
from PIL import Image
from reportlab.lib import colors
from reportlab.pdfgen import canvas
from reportlab.platypus import SimpleDocTemplate, Table

c = canvas.Canvas("made.pdf")
c.setFont("Helvetica", 24)
c.drawString(100, 700, "Quarterly report")
c.showPage()
c.save()
assert "Quarterly report" in pypdf.PdfReader("made.pdf").pages[0].extract_text()
assert "Quarterly report" in pdfplumber.open("made.pdf").pages[0].extract_text()
assert "Quarterly report" in extract_text("made.pdf")
assert "Quarterly report" in pymupdf.open("made.pdf")[0].get_text()
assert "Quarterly report" in subprocess.run(["pdftotext", "made.pdf", "-"], check=True,
                                            capture_output=True, text=True).stdout
assert pdf2image.convert_from_path("made.pdf", dpi=50)[0].size[0] > 300

with pikepdf.open("made.pdf") as doc:
    doc.pages.append(doc.pages[0])
    doc.save("two.pdf", encryption=pikepdf.Encryption(owner="o", user="secret"))
locked = pypdf.PdfReader("two.pdf")
assert locked.is_encrypted and locked.decrypt("secret") and len(locked.pages) == 2

Image.new("RGB", (60, 40), "green").save("green.jpg")
open("green.pdf", "wb").write(img2pdf.convert("green.jpg"))
assert pymupdf.open("green.pdf")[0].get_images()
subprocess.run(["gs", "-q", "-dNOPAUSE", "-dBATCH",
                "-sDEVICE=pdfwrite", "-sOutputFile=joined.pdf", "made.pdf", "green.pdf"], check=True)
assert len(pypdf.PdfReader("joined.pdf").pages) == 2

table = Table([["city", "people"], ["Ulm", "128000"], ["Jena", "111000"]],
              style=[("GRID", (0, 0), (-1, -1), 1, colors.black)])
SimpleDocTemplate("table.pdf").build([table])
assert pdfplumber.open("table.pdf").pages[0].extract_table()[1] == ["Ulm", "128000"]
read = tabula.read_pdf("table.pdf", lattice=True, pages=1)[0]  # runs Java
assert list(read.columns) == ["city", "people"] and read.people.sum() == 239000
