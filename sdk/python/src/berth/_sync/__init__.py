# Made by dev/make_sync.py of ../_async/__init__.py; do not edit.
