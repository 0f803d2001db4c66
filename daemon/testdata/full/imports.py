# Imports every promised package. Each must come from its compiled form and from the image's own directory: a Debian
# package of the same name must not come first.
import importlib, os, sys, warnings

warnings.simplefilter("error", ImportWarning)
promised = """
numpy pandas scipy sklearn xgboost shap statsmodels numba
matplotlib seaborn bokeh altair holoviews hvplot wordcloud
PIL cv2 skimage imageio
pymupdf pdfplumber pdfminer pypdf pikepdf pdf2image reportlab img2pdf
openpyxl xlrd xlsxwriter docx pptx tabula
geopandas shapely fiona pyproj
bs4 requests lxml markdownify markitdown
nltk regex tokenizers
pyarrow h5py yaml
onnxruntime huggingface_hub
tqdm rich click networkx sympy graphviz
openai anthropic google.genai groq cohere mistralai together boto3
httpx tenacity pydantic jsonschema docxtpl
aiohttp vl_convert
""".split()
assert len(promised) > 60, len(promised)
for name in promised:
    if name == "fiona" and os.uname().machine != "x86_64":
        continue  # it has no wheel for others
    module = importlib.import_module(name)
    where = module.__file__ or module.__path__[0]
    assert where.startswith("/usr/local/lib/python3.11/dist-packages/"), (name, where)
    if where.endswith(".py"):
        assert os.path.exists(module.__cached__), f"{name} is not compiled"
from mpl_toolkits.mplot3d import Axes3D
assert "/usr/local/" in sys.modules["mpl_toolkits.mplot3d"].__file__, sys.modules["mpl_toolkits.mplot3d"].__file__
