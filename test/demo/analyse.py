"""Mean temperature by month and hour, from a year of hourly readings."""
import os

import matplotlib.pyplot as plt
import pandas as pd

data = pd.read_csv(os.path.join(os.environ["INPUT_DIR"], "seattle-temps.csv"), parse_dates=["date"])
table = data.pivot_table(values="temp", index=data.date.dt.hour, columns=data.date.dt.month)
print(f"{len(data)} readings, {data.temp.min():.1f} to {data.temp.max():.1f} °F")
print(table.loc[[6, 15]].round(1).to_string())

figure, axes = plt.subplots(figsize=(8, 5))
image = axes.imshow(table, aspect="auto", origin="lower", cmap="viridis")
axes.set(title="Seattle 2010, temperature by hour and month (°F)", xlabel="month", ylabel="hour")
axes.set_xticks(range(12), range(1, 13))
figure.colorbar(image)
figure.savefig(os.path.join(os.environ["OUTPUT_DIR"], "chart.png"), dpi=120)
