package daemon_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/code"
	"berth/proto"
)

// withoutProxy has a script's programs know of no proxy.
const withoutProxy = "unset ${!HTTP_*} ${!http_*} ${!HTTPS_*} ${!https_*} ${!ALL_*} ${!all_*} ${!NO_*} ${!no_*}\n"

// greeter starts a server whose protocol is none that the daemon knows: it speaks first, then echoes a line.
func greeter(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, "welcome ")
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// Programs that know of no proxy reach what the list has, by name and by address, and nothing else.
func TestOutbound(t *testing.T) {
	w := newInternet(t)
	eachClass(t, w.testOutbound)
}

func (w *internet) testOutbound(t *testing.T, class proto.RuntimeClass) {
	other := greeter(t)
	c := w.container(t, class, fmt.Sprintf(
		`{"allow":["web.test:%s","example.com:%s","other.test:%s","127.0.0.1:%[1]s"]}`, w.plain, w.secure, other))
	w.names.Set("other.test", "127.0.0.1")
	const python = "python3 - <<'E'\n"
	for _, said := range [][2]string{
		{`curl -s http://web.test:PLAIN/`, "GET web.test:PLAIN body=0"},
		{`curl -s --data-binary @/usr/bin/python3 http://web.test:PLAIN/`, "POST web.test:PLAIN body=1"},
		{`curl -s --cacert /tmp/ca.pem https://example.com:SECURE/`, "GET example.com:SECURE body=0"},
		{`python3 -c 'import urllib.request as u; print(u.urlopen("http://web.test:PLAIN/").read().decode())'`,
			"GET web.test:PLAIN body=0"},
		{`python3 -c 'import requests; print(requests.get("https://example.com:SECURE/", verify="/tmp/ca.pem").text)'`,
			"GET example.com:SECURE body=0"},
		{`node -e 'fetch("http://web.test:PLAIN/").then(r => r.text()).then(console.log)'`,
			"GET web.test:PLAIN body=0"},
		{`for i in $(seq 60); do curl -s http://web.test:PLAIN/ -o /dev/null & done; wait; echo all`, "all"},
		{`exec 3<>/dev/tcp/other.test/OTHER; echo me >&3; head -1 <&3`, "welcome me"},
		{`getent ahostsv4 WEB.test | wc -l`, "3"},
		{`getent hosts web.test | cut -d. -f1-2`, "198.18"},
		{python + "import socket\nprint(socket.gethostbyname('web.test') == socket.gethostbyname('web.test') != " +
			"socket.gethostbyname('other.test'))\nE", "True"},

		// another port, a name that is not listed, one that is not there, an address
		{`curl -s -m 20 http://web.test:SECURE/ || echo reset`, "reset"},
		{`getent hosts inner.test || echo unknown`, "unknown"},
		{`curl -s -m 20 https://unlisted.test/ || echo $?`, "6"},
		{`curl -s -m 20 http://169.254.169.254/latest | head -c 33`, "169.254.169.254:80 is not on this"},
		{`curl -sk -m 20 https://8.8.8.8/ || echo $?`, "35"},
		{`curl -sk -m 20 https://web.test/ || echo $?`, "35"},
		{`curl -s -m 20 -H 'Host: evil.test' http://web.test:PLAIN/ | grep -o 'its Host.*'`,
			`its Host header says "evil.test"`},
		{`curl -sk -m 20 --connect-to ::example.com:SECURE https://evil.test/ || echo $?`, "35"},
		{`curl -s -m 20 http://198.18.200.200:PLAIN/ || echo reset`, "reset"},
		{python + "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('8.8.8.8', 123))\n" +
			"s.send(b'x')\ns.settimeout(20)\ntry: s.recv(1)\nexcept ConnectionRefusedError: print('refused')\nE",
			"refused"},
		{python + "import socket\ns = socket.socket(socket.AF_INET6)\ns.settimeout(20)\n" +
			"try: s.connect(('2001:4860:4860::8888', 443))\nexcept OSError as e: print(e.strerror)\nE",
			"Network is unreachable"},
		{python + "import socket\ns = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n" +
			"try: s.connect(('2001:4860:4860::8888', 53)); s.send(b'x')\nexcept OSError as e: print(e.strerror)\nE",
			"Network is unreachable"},

		// its own loopback
		{python + "import socket, threading\nl = socket.create_server(('127.0.0.1', 8080))\n" +
			"s = socket.create_connection(('127.0.0.1', 8080))\nl.accept()[0].send(b'own')\nprint(s.recv(9).decode())\nE",
			"own"},
		{`curl -s -m 20 http://127.0.0.1:PLAIN/ || echo $?`, "7"},
		{python + "import socket\nl = socket.create_server(('::1', 8081), family=socket.AF_INET6)\n" +
			"s = socket.create_connection(('localhost', 8081))\nl.accept()[0].send(b'own')\nprint(s.recv(9).decode())\nE",
			"own"},
	} {
		w.says(t, c.ID, withoutProxy+strings.ReplaceAll(said[0], "OTHER", other), said[1])
	}
	if list := call[struct{ Data []proto.Port }](t, w.server, 200, "GET", "/v1/containers/"+c.ID+"/ports",
		"").Data; len(list) != 0 {
		t.Errorf("the daemon's own sockets are listed: %+v", list)
	}
}

// Names keep their addresses over a pause. After a stop and with the next daemon they can be asked for again.
func TestOutboundStays(t *testing.T) {
	w := newInternet(t)
	eachClass(t, w.testOutboundStays)
}

func (w *internet) testOutboundStays(t *testing.T, class proto.RuntimeClass) {
	c := w.container(t, class, fmt.Sprintf(`{"allow":["web.test:%s"]}`, w.plain))
	const ask = `curl -s -m 60 http://web.test:PLAIN/`
	const want = "GET web.test:PLAIN body=0"
	w.says(t, c.ID, withoutProxy+ask+" && getent hosts web.test | cut -d' ' -f1 >/tmp/address", want)
	call[proto.Container](t, w.server, 200, "POST", "/v1/containers/"+c.ID+"/pause", "")
	w.says(t, c.ID, withoutProxy+`curl -s -m 60 -H "Host: web.test:PLAIN" http://$(cat /tmp/address):PLAIN/`, want)
	call[proto.Container](t, w.server, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
	w.says(t, c.ID, withoutProxy+ask, want)
	w.Stop(syscall.SIGKILL)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	w.says(t, c.ID, withoutProxy+ask, want)

	// A container that has begun without a network: its kernel may take one only when it starts.
	c = w.container(t, class, `"none"`)
	call[proto.Container](t, w.server, 200, "PATCH", "/v1/containers/"+c.ID, fmt.Sprintf(
		`{"network":{"allow":["web.test:%s"]}}`, w.plain))
	w.says(t, c.ID, ask, want)
	call[proto.Container](t, w.server, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
	w.says(t, c.ID, withoutProxy+ask, want)
}

// A container without a network has no way out, and its name server answers nobody.
func TestNoOutbound(t *testing.T) {
	w := newInternet(t)
	eachClass(t, w.testNoOutbound)
}

func (w *internet) testNoOutbound(t *testing.T, class proto.RuntimeClass) {
	c := w.container(t, class, `"none"`)
	for script, want := range map[string]string{
		`curl -s -m 20 http://web.test:PLAIN/ || echo $?`: "6",
		`curl -s -m 20 http://8.8.8.8/ || echo $?`:        "7",
		`getent hosts web.test || echo unknown`:           "unknown",
		`tail -n +2 /proc/net/route | wc -l`:              "0",
	} {
		w.says(t, c.ID, script, want)
	}
}

// The network of a container changes while it runs: what is allowed works at once, what is not ends at once.
func TestNetworkChanges(t *testing.T) {
	w := newInternet(t)
	eachClass(t, func(t *testing.T, class proto.RuntimeClass) {
		c := w.container(t, class, `"none"`)
		at := "/v1/containers/" + c.ID
		const ask = codesOf + "http://web.test:PLAIN/ http://example.com:PLAIN/"
		patch := func(network string) proto.Container {
			t.Helper()
			return call[proto.Container](t, w.server, 200, "PATCH", at, strings.ReplaceAll(
				`{"network":`+network+`}`, "PLAIN", w.plain))
		}
		w.says(t, c.ID, ask, "000000 000000")
		if now := patch(`{"allow":["web.test:PLAIN"]}`); now.Network.Mode != proto.NetworkAllowlist ||
			len(now.Network.Allow) != 1 || now.Isolation.Network != proto.ThroughProxy {
			t.Errorf("%+v, %s", now.Network, now.Isolation.Network)
		}
		w.says(t, c.ID, ask, "200000 403000")
		bash(t, w.server, c.ID, fmt.Sprintf("rm -f /tmp/held; (curl -sN http://web.test:%s/hold >/tmp/held; "+
			"echo ended >/tmp/held) >/dev/null 2>&1 & until grep -qs begun /tmp/held; do sleep 0.05; done", w.plain))
		patch(`{"allow":["example.com:PLAIN"]}`)
		w.says(t, c.ID, "until grep -qs ended /tmp/held; do sleep 0.05; done; "+ask, "403000 200000")
		patch(`"open"`)
		w.says(t, c.ID, ask, "200000 200000")
		if now := patch(`"none"`); now.Isolation.Network != string(proto.NetworkNone) {
			t.Errorf("isolated by %s", now.Isolation.Network)
		}
		w.says(t, c.ID, ask, "000000 000000")
		e := call[struct{ Error proto.Error }](t, w.server, 400, "PATCH", at, `{"network":{"allow":["10.0.0.1"]}}`)
		if e.Error.Item != "network.allow" {
			t.Errorf("%+v", e.Error)
		}
		call[proto.Container](t, w.server, 200, "POST", at+"/stop", "")
		patch(fmt.Sprintf(`{"allow":["web.test:%s"]}`, w.plain))
		w.says(t, c.ID, ask, "200000 403000")
	})
}

// The answer of a command says what the network refused while it ran, and what would allow it.
func TestRefusalsAreNoted(t *testing.T) {
	w := newInternet(t)
	c := w.container(t, proto.ClassRunc, fmt.Sprintf(`{"allow":["web.test:%s"]}`, w.plain))
	at := "/v1/containers/" + c.ID
	const script = "curl -s http://other.test/; curl -s http://web.test:%s/; getent hosts third.test; " +
		"curl -s --noproxy '*' http://8.8.8.8:99/; true"
	want := []string{
		`the network refused a connection: other.test:80 is not on this container's list; add "other.test" to its network.allow`,
		`the network refused a connection: third.test is not on this container's list; add "third.test" to its network.allow`,
		`the network refused a connection: 8.8.8.8:99 is not on this container's list; add "8.8.8.8:99" to its network.allow`,
	}
	res := call[proto.ExecResult](t, w.server, 200, "POST", at+"/exec", asJSON(t, proto.Cmd{Command: fmt.Sprintf(script,
		w.plain)}))
	if !slices.Equal(res.Notes, want) {
		t.Errorf("%q", res.Notes)
	}
	cell := "import subprocess\nsubprocess.run(['bash', '-c', '''" + fmt.Sprintf(script, w.plain) + "'''])\nNone"
	if out := call[code.Outcome](t, w.server, 200, "POST", at+"/contexts/main/run",
		asJSON(t, code.Cell{Code: cell})); !slices.Equal(out.Notes, want) {
		t.Errorf("%q", out.Notes)
	}
	if res := call[proto.ExecResult](t, w.server, 200, "POST", at+"/exec", `{"command":"true"}`); len(res.Notes) > 0 {
		t.Errorf("a later command is told %q", res.Notes)
	}
}
