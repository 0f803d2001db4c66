import os, subprocess, zipfile
import docx, docxtpl, openpyxl, pandas as pd, pptx, pypdf, xlrd, xlsxwriter
from markitdown import MarkItDown

d = docx.Document()
d.add_heading("Minutes of {{ month }}")
d.add_paragraph("Everybody agreed.")
d.save("template.docx")
t = docxtpl.DocxTemplate("template.docx")
t.render({"month": "March"})
t.save("minutes.docx")
assert docx.Document("minutes.docx").paragraphs[0].text == "Minutes of March"

p = pptx.Presentation()
p.slides.add_slide(p.slide_layouts[0]).shapes.title.text = "A title"
p.save("talk.pptx")
assert pptx.Presentation("talk.pptx").slides[0].shapes.title.text == "A title"

book = xlsxwriter.Workbook("made.xlsx")
sheet = book.add_worksheet()
sheet.write_row(0, 0, ["v"])
sheet.write_column(1, 0, [1, 2, 3])
sheet.write_formula(4, 0, "=SUM(A2:A4)")
book.add_chart({"type": "line"}).add_series({"values": "=Sheet1!$A$2:$A$4"})
book.close()
assert pd.read_excel("made.xlsx").v[:3].sum() == 6
book = openpyxl.load_workbook("made.xlsx")
assert book.active["A5"].value == "=SUM(A2:A4)"
book.save("made.xlsx")  # without the value that xlsxwriter claims for it


def convert(to, name):
    subprocess.run(["soffice", "--headless", "--convert-to", to, name], check=True, stdout=subprocess.DEVNULL)


for name in "minutes.docx", "talk.pptx", "made.xlsx":
    convert("pdf", name)
assert "Everybody agreed." in pypdf.PdfReader("minutes.pdf").pages[0].extract_text()
assert "A title" in pypdf.PdfReader("talk.pdf").pages[0].extract_text()
assert "6" in pypdf.PdfReader("made.pdf").pages[0].extract_text()  # it has calculated
convert("xls", "made.xlsx")
assert xlrd.open_workbook("made.xls").sheet_by_index(0).cell_value(4, 0) == 6
assert "# Minutes of March" in MarkItDown().convert("minutes.docx").text_content
assert "| v |" in MarkItDown().convert("made.xlsx").text_content
