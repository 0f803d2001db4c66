# Debian's matplotlib tells Python at each start that mpl_toolkits is its own, so it cannot stay below a newer one.
dpkg --purge python3-matplotlib
rm -rf /usr/lib/python3/dist-packages/matplotlib /usr/lib/python3/dist-packages/mpl_toolkits
