// Package contents knows what the image full has beyond base, so that an error about something missing can name the
// image that has it. Packages code and tools/toolstore/program word those errors. The lists of what is installed are
// the image's definition, in sandbox-image/full.
package contents

import (
	"slices"
	"strings"
)

// Image is the image that Module, Program and NodeModule speak of.
const Image = "full"

// programs are the programs that people call by name.
var programs = []string{"ffmpeg", "ffprobe", "convert", "identify", "mogrify", "montage", "gs", "rsvg-convert",
	"pdftotext", "pdftoppm", "pdfinfo", "pdfimages", "pdftohtml", "pdfunite", "pdfseparate", "tesseract", "pandoc",
	"soffice", "libreoffice", "localc", "lowriter", "dot", "neato", "node", "npm", "npx", "tsc", "esbuild", "Rscript",
	"R", "java", "javac", "jar", "jshell", "fc-list"}

// modules are Python modules by the distribution that brings them, as wheels.in names it.
var modules = map[string][]string{
	"aiohttp": nil, "altair": nil, "anthropic": nil, "beautifulsoup4": {"bs4"}, "bokeh": nil,
	"boto3": {"boto3", "botocore"}, "click": nil, "cohere": nil, "docxtpl": nil, "Fiona": {"fiona"}, "geopandas": nil,
	"google-genai": {"google"}, "graphviz": nil, "groq": nil, "h5py": nil, "holoviews": nil, "httpx": nil,
	"huggingface-hub": {"huggingface_hub"}, "hvplot": nil, "imageio": nil, "img2pdf": nil, "jsonschema": nil,
	"lxml": nil, "markdownify": nil, "markitdown": nil, "matplotlib": {"matplotlib", "mpl_toolkits"}, "mistralai": nil,
	"networkx": nil, "nltk": nil, "numba": nil, "numpy": nil, "onnxruntime": nil, "openai": nil,
	"opencv-python-headless": {"cv2"}, "openpyxl": nil, "pandas": nil, "pdf2image": nil, "pdfminer.six": {"pdfminer"},
	"pdfplumber": nil, "pikepdf": nil, "pillow": {"PIL"}, "pyarrow": nil, "pydantic": nil,
	"PyMuPDF": {"pymupdf", "fitz"}, "pypdf": nil, "pyproj": nil, "python-docx": {"docx"}, "python-pptx": {"pptx"},
	"PyYAML": {"yaml"}, "regex": nil, "reportlab": nil, "requests": nil, "rich": nil, "scikit-image": {"skimage"},
	"scikit-learn": {"sklearn"}, "scipy": nil, "seaborn": nil, "shap": nil, "shapely": nil, "statsmodels": nil,
	"sympy": nil, "tabula-py": {"tabula"}, "tenacity": nil, "together": nil, "tokenizers": nil, "tqdm": nil,
	"vl-convert-python": {"vl_convert"}, "wordcloud": nil, "xgboost-cpu": {"xgboost"}, "xlrd": nil,
	"XlsxWriter": {"xlsxwriter"},
}

// nodeModules are modules of Node.
var nodeModules = []string{"esbuild", "typescript"}

// Program reports whether the image has the program of that name.
func Program(name string) bool { return slices.Contains(programs, name) }

// Module reports whether the image has the Python module of that name, which may be one inside a package.
func Module(name string) bool {
	top, _, _ := strings.Cut(name, ".")
	for distribution, names := range modules {
		if names == nil && distribution == top || slices.Contains(names, top) {
			return true
		}
	}
	return false
}

// NodeModule reports whether the image has the Node module of that name, or the module that a path is in.
func NodeModule(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains(nodeModules, top)
}
