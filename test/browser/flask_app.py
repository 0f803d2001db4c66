# A page with a form and a session in a signed cookie.
from flask import Flask, redirect, request, session

app = Flask(__name__)
app.secret_key = "a test's"


@app.route("/", methods=["GET", "POST"])
def index():
    if request.method == "POST":
        session["name"] = request.form["name"]
        return redirect("/")
    return f"<title>flask</title><p id=name>{session.get('name', 'nobody')}</p><form method=post><input name=name></form>"
