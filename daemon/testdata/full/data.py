import h5py, numpy as np, pandas as pd, pyarrow.parquet as pq, yaml
import geopandas, fiona, pyproj, subprocess
from shapely.geometry import Point, Polygon

frame = pd.DataFrame({"a": range(1000), "b": ["x", "y"] * 500})
frame.to_parquet("t.parquet")
assert pq.read_table("t.parquet").num_rows == 1000 and pd.read_parquet("t.parquet").equals(frame)
frame.to_feather("t.feather")
assert pd.read_feather("t.feather").equals(frame)
with h5py.File("t.h5", "w") as f:
    f["grid"] = np.arange(100).reshape(10, 10)
assert h5py.File("t.h5")["grid"][3, 4] == 34
assert yaml.safe_load(yaml.safe_dump({"k": [1, "ä"]})) == {"k": [1, "ä"]}
assert subprocess.run(["jq", "-c", ".a|add"], input='{"a":[1,2]}',
                      capture_output=True, text=True, check=True).stdout == "3\n"

square = Polygon([(0, 0), (2, 0), (2, 2), (0, 2)])
places = geopandas.GeoDataFrame({"name": ["in", "out"]}, geometry=[Point(1, 1), Point(5, 5)], crs="EPSG:4326")
assert list(places[places.within(square)].name) == ["in"]
places.to_file("places.gpkg", driver="GPKG")
assert len(fiona.open("places.gpkg")) == 2 and len(geopandas.read_file("places.gpkg", engine="fiona")) == 2
x, y = pyproj.Transformer.from_crs(4326, 3857, always_xy=True).transform(10, 50)
assert abs(x - 1113194.9) < 1 and abs(y - 6446275.8) < 1
