import numba, numpy as np, pandas as pd, scipy.optimize, shap, statsmodels.api as sm, sympy, xgboost, networkx
from sklearn.datasets import make_regression
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import train_test_split

x, y = make_regression(n_samples=300, n_features=5, n_informative=3, random_state=1)
train_x, test_x, train_y, test_y = train_test_split(x, y, random_state=1)
forest = RandomForestRegressor(n_estimators=30, n_jobs=2, random_state=1).fit(train_x, train_y)
assert forest.score(test_x, test_y) > 0.5

boosted = xgboost.XGBRegressor(n_estimators=30, max_depth=3).fit(train_x, train_y)
assert boosted.score(test_x, test_y) > 0.5
values = shap.TreeExplainer(boosted).shap_values(test_x)
assert np.allclose(values.sum(axis=1) + shap.TreeExplainer(boosted).expected_value, boosted.predict(test_x), atol=0.5)

line = sm.OLS([3.0, 5.0, 7.0, 9.0], sm.add_constant([1.0, 2.0, 3.0, 4.0])).fit()
assert np.allclose(line.params, [1, 2])


@numba.njit
def total(n):
    s = 0
    for i in range(n):
        s += i
    return s


assert total(1000) == 499500
assert abs(scipy.optimize.brentq(lambda v: v * v - 2, 0, 2) - 2**0.5) < 1e-9
assert np.linalg.matrix_rank(np.eye(50) @ np.ones((50, 50))) == 1
frame = pd.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3]}).groupby("k").v.sum()
assert frame.to_dict() == {"a": 4, "b": 2}
v = sympy.Symbol("v")
assert sympy.integrate(2 * v, v) == v**2
assert networkx.shortest_path(networkx.path_graph(4), 0, 3) == [0, 1, 2, 3]
