"""Runs in the container: sums by month and item, as a table and as a chart."""
import matplotlib.pyplot as plt
import pandas as pd

orders = pd.read_csv("orders.csv", parse_dates=["day"])
table = orders.pivot_table(values="amount", index=orders.day.dt.to_period("M"), columns="item", aggfunc="sum")
table.to_csv("months.csv")
table.plot.bar(title="Orders by month", stacked=True)
plt.savefig("chart.png")
print(table.fillna(0).astype(int))
