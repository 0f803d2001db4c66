package e2bclients_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/clients"
	"berth/test/needs"
)

// harborRoot makes a Debian with a Python that is new enough for Harbor, and installs Harbor into it. All packages are
// pinned, so that pip has nothing to choose.
const harborRoot = `rm -rf root
mmdebstrap --quiet --variant=essential --include=python3,ca-certificates trixie root.tar
mkdir root && tar -C root -xf root.tar && rm root.tar
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target root/opt/packages --python-version 3.13 \
	--platform manylinux2014_$(uname -m) --platform manylinux_2_28_$(uname -m) --only-binary=:all: \
	--ignore-requires-python -r requirements.txt
mkdir -p root/program && touch root/etc/resolv.conf root/etc/daemon-ca.pem`

// inRoot runs the command after it in that Debian, with this machine's network, name server and authority.
const inRoot = `mount --bind /etc/resolv.conf root/etc/resolv.conf
mount --bind "$SSL_CERT_FILE" root/etc/daemon-ca.pem
mount --bind . root/program
mount -t proc proc root/proc
mount --rbind /dev root/dev
exec chroot root env SSL_CERT_FILE=/etc/daemon-ca.pem TMPDIR=/tmp HOME=/root PYTHONPATH=/opt/packages "$@"`

// TestFrameworks has frameworks that bring a client of their own for E2B do a task each, by names alone, which all of
// them know.
func TestFrameworks(t *testing.T) {
	if os.Getenv("BERTH_FRAMEWORKS") == "" {
		t.Skip("BERTH_FRAMEWORKS is not set: `make test-e2b-frameworks` runs this, and installs 1.5 GB once")
	}
	needs.Containers(t)
	python := []string{"venv/bin/python", "main.py"}
	frameworks := []struct {
		dir, install string
		argv         []string
	}{
		{"openai", clients.Python, python}, {"langchain", clients.Python, python}, {"litellm", clients.Python, python},
		{"harbor", harborRoot, []string{"sh", "-euc", inRoot, "sh", "python3", "/program/main.py"}},
	}
	d := start(t, "--tls-self-signed", "--domain", domain)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"E2B_DOMAIN=" + domain + ":" + port, "SSL_CERT_FILE=" + d.CAFile(),
		"LITELLM_LOCAL_MODEL_COST_MAP=True"} // its list of prices is on a server elsewhere
	resolve := resolver(t)
	for _, f := range frameworks {
		t.Run(f.dir, func(t *testing.T) {
			dir := clients.Install(t, "e2b-"+f.dir, f.install, filepath.Join(f.dir, "requirements.txt"),
				filepath.Join(f.dir, "main.py"))
			program(t, d, dir, env, append(resolve, f.argv...)...)
		})
	}
	checkLog(t, d)
}
