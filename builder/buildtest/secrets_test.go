package buildtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
	"berth/test/daemontest"
)

// withSecrets uses secrets in the forms that Dockerfiles have. A step's output is not changed, so it prints sums.
const withSecrets = `FROM base
USER root
RUN --mount=type=secret,id=token,required=true sha256sum < /run/secrets/token && stat -c 'is %a %u %g' /run/secrets/token
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc,uid=33,gid=44,mode=0440 \
    --mount=type=secret,id=token,env=TOKEN \
    sha256sum /root/.npmrc && stat -c 'is %a %u %g' /root/.npmrc && printf %s "$TOKEN" | sha256sum && \
    ! sh -c 'echo x > /root/.npmrc' && ! test -e /run/secrets/token
RUN --mount=type=secret,id=absent test ! -e /run/secrets/absent
RUN test -z "$TOKEN" && test ! -e /root/.npmrc && test ! -e /run/secrets
USER www-data
RUN --mount=type=secret,id=token,uid=33 cat /run/secrets/token > /dev/null
RUN --mount=type=secret,id=token ! cat /run/secrets/token
`

// newSecret returns a secret that is nowhere else.
func newSecret() string { return "sesame-" + rand.Text() }

// TestSecrets builds with secrets, and looks for them everywhere afterwards. Another secret of the same ID makes no
// step run again.
func TestSecrets(t *testing.T) {
	for _, class := range classes {
		t.Run(string(class), func(t *testing.T) {
			c := connect(t, daemon)
			token, npmrc := newSecret(), newSecret()+"\nsecond line\n"
			o := proto.BuildOptions{Name: "secrets-" + string(class), Class: class, Secrets: map[string][]byte{
				"token": []byte(token), "npmrc": []byte(npmrc)}}
			// The cache does not know classes, so each has steps of its own.
			own := strings.Replace(withSecrets, "FROM base\n", "FROM base\nENV CLASS="+string(class)+"\n", 1)
			files := map[string]string{"Dockerfile": own}
			img, r, err := build(t.Context(), c, o, contextOf(t, files), nil)
			if err != nil {
				t.Fatalf("%v; output %q", err, r.logs)
			}
			for _, want := range []string{sumOf(token) + "  -\nis 400 0 0\n", sumOf(npmrc) + "  /root/.npmrc\n",
				"is 440 33 44\n" + sumOf(token) + "  -\n"} {
				if !strings.Contains(r.logs, want) {
					t.Errorf("output %q lacks %q", r.logs, want)
				}
			}
			look := "ls -A /run/secrets /root/.npmrc 2>/dev/null; env; find / -xdev -newer /etc/passwd -name '*npmrc*'"
			if got := runIn(t, c, img.Name, look); strings.Contains(got, "secrets") || strings.Contains(got, "npmrc") {
				t.Errorf("the image has %q", got)
			}
			nowhere(t, daemon, token, strings.TrimSpace(npmrc[:20]))
			o.Secrets["token"] = []byte(newSecret())
			if _, r, err = build(t.Context(), c, o, contextOf(t, files), nil); err != nil || r.ran != 0 {
				t.Errorf("again with another secret: %v, %+v", err, r)
			}
			nothingLeft(t, daemon)
		})
	}
}

// nowhere checks that texts are in no file of a daemon's data directory, nor in its sockets' directory or log.
func nowhere(t *testing.T, d *daemontest.Daemon, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if len(text) < 16 {
			t.Fatalf("%q may be anywhere", text)
		}
		if strings.Contains(d.Log(), text) {
			t.Error("the log has a secret")
		}
		cmd := exec.Command("grep", "-rlF", "--devices=skip", "-e", text, d.Dir, d.RunDir())
		if out, _ := cmd.Output(); len(out) > 0 { // the status is 1 if nothing is found
			t.Errorf("a secret is in %s", out)
		}
	}
}

// TestSecretsAfterKill kills the daemon while a step has a secret. No file and no mount has it then.
func TestSecretsAfterKill(t *testing.T) {
	d, err := daemontest.New("--warm-max", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	token := newSecret()
	each, runs := untilRuns()
	go func() { <-runs; d.Stop(syscall.SIGKILL) }()
	files := map[string]string{"Dockerfile": "FROM base\nUSER root\n" +
		"RUN --mount=type=secret,id=token test -s /run/secrets/token && echo it-runs; sleep 1000\n"}
	o := proto.BuildOptions{Name: "killed", Secrets: map[string][]byte{"token": []byte(token)}}
	if _, _, err := build(t.Context(), connect(t, d), o, contextOf(t, files), each); err == nil {
		t.Fatal("a build outlived its daemon")
	}
	nowhere(t, d, token)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	nowhere(t, d, token)
	nothingLeft(t, d)
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		text, _ := os.ReadFile(table) // processes end meanwhile
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " ramfs ") && strings.Contains(line, d.Dir) {
				t.Errorf("%s has %s", table, line)
			}
		}
	}
	// The client sends the secret again.
	files["Dockerfile"] = "FROM base\nRUN --mount=type=secret,id=token,uid=1000,env=T printf %s \"$T\" | sha256sum\n"
	_, r, err := build(t.Context(), connect(t, d), o, contextOf(t, files), nil)
	if err != nil || !strings.Contains(r.logs, sumOf(token)) {
		t.Errorf("after a restart: %v, %+v", err, r)
	}
}

// TestSecretFailures checks what is refused, and that an error names the secret and a way out.
func TestSecretFailures(t *testing.T) {
	c := connect(t, daemon)
	const mounted = "FROM base\nRUN --mount=type=secret,id=token,"
	large := bytes.Repeat([]byte("x"), proto.MaxBuildSecretBytes+1)
	for name, test := range map[string]struct {
		dockerfile string
		secrets    map[string][]byte
		code       proto.Code
		says       string
	}{
		"missing": {mounted + "required=true true\n", map[string][]byte{"other": []byte("x")}, proto.InvalidArgument,
			"--secret id=token"},
		"missing variable": {mounted + "required=true,env=T true\n", nil, proto.InvalidArgument, "--secret id=token"},
		"no text": {mounted + "env=T true\n", map[string][]byte{"token": {0xff, 0}}, proto.InvalidArgument,
			"without env="},
		"no user":   {mounted + "uid=70000 true\n", map[string][]byte{"token": []byte("x")}, proto.InvalidArgument, "70000"},
		"too large": {"FROM base\n", map[string][]byte{"token": large}, proto.TooLarge, "token"},
		"ID":        {"FROM base\n", map[string][]byte{"a/b": []byte("x")}, proto.InvalidArgument, "a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			o := proto.BuildOptions{Name: "fails", Secrets: test.secrets}
			_, r, err := build(t.Context(), c, o, contextOf(t, map[string]string{"Dockerfile": test.dockerfile}), nil)
			if proto.CodeOf(err) != test.code || !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("%v, code %q; logs %q", err, proto.CodeOf(err), r.logs)
			}
		})
	}
	// What a step prints before it fails is kept in the error, without the secret.
	token := newSecret()
	o := proto.BuildOptions{Name: "fails", Secrets: map[string][]byte{"token": []byte(token + "\n")}}
	var said *proto.BuildError
	_, _, err := build(t.Context(), c, o, contextOf(t, map[string]string{
		"Dockerfile": "FROM base\nUSER root\nRUN --mount=type=secret,id=token cat /run/secrets/token; exit 3\n"}),
		func(ev proto.BuildEvent) {
			if ev.Error != nil {
				said = ev.Error
			}
		})
	if err == nil || said == nil || said.ExitCode != 3 || said.Log != "[redacted]\n" {
		t.Errorf("%v, %+v", err, said)
	}
	nowhere(t, daemon, token)
	nothingLeft(t, daemon)
}

// A formPart is a part of a form.
type formPart struct{ name, file, text string }

// TestSecretForms sends forms that are wrong, and one that is right but has no length.
func TestSecretForms(t *testing.T) {
	archive, err := io.ReadAll(contextOf(t, map[string]string{"Dockerfile": "FROM base\nENV FORM=1\n"}))
	if err != nil {
		t.Fatal(err)
	}
	tar := formPart{"context", "c.tar", string(archive)}
	var many []formPart
	for i := range proto.MaxBuildSecrets + 1 {
		many = append(many, formPart{"secret", fmt.Sprintf("s%d", i), "x"})
	}
	big := strings.Repeat("x", proto.MaxBuildSecretBytes)
	for name, test := range map[string]struct {
		parts  []formPart
		cut    int // bytes at the end of the form that are not sent
		status int
		says   string
	}{
		"right":          {[]formPart{{"secret", "a", "1"}, tar}, 0, 200, `"type":"image"`},
		"no context":     {[]formPart{{"secret", "a", "1"}}, 0, 400, "no build context"},
		"no ID":          {[]formPart{{"secret", "", "1"}, tar}, 0, 400, "ID of a secret"},
		"twice":          {[]formPart{{"secret", "a", "1"}, {"secret", "a", "2"}, tar}, 0, 400, "two secrets"},
		"unknown part":   {[]formPart{{"secrets", "a", "1"}, tar}, 0, 400, "secrets"},
		"secret at last": {[]formPart{tar, {"secret", "a", "1"}}, 0, 400, "after the build context"},
		"cut off":        {[]formPart{{"secret", "a", "1"}, tar}, 40, 400, "not complete"},
		"too many":       {append(many, tar), 0, 400, "32 secrets"},
		"too large":      {[]formPart{{"secret", "a", big + "x"}, tar}, 0, 413, "secret a "},
		"too large as all": {[]formPart{{"secret", "a", big}, {"secret", "b", big}, {"secret", "c", big},
			{"secret", "d", big}, {"secret", "e", big}, tar}, 0, 413, "together"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := sendForm(t, test.parts, test.cut)
			if status != test.status || !strings.Contains(text, test.says) {
				t.Errorf("%d %.300s", status, text)
			}
		})
	}
	nothingLeft(t, daemon)
}

// sendForm sends a form to build an image and returns the answer.
func sendForm(t *testing.T, parts []formPart, cut int) (int, string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, p := range parts {
		w, err := form.CreateFormFile(p.name, p.file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, p.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	body.Truncate(body.Len() - cut)
	req, err := http.NewRequestWithContext(context.Background(), "POST", daemon.URL+"/v1/images/build?name=form",
		struct{ io.Reader }{&body})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("X-Api-Key", daemon.Key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
