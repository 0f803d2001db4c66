# A page with a button whose script runs again at each press.
import streamlit as st

if st.button("press"):
    st.write("pressed")
