package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// Groups 35, 37 and 38 for a container whose connections wait for a person. What it asks for is what a person reads,
// and a person may approve anything: so it must not be able to ask for more than an owner may list.
var _ = register(
	Case{
		Group: 38, Name: "asking/reach",
		Tries: "ask for metadata services, private addresses, the host, names of one label, and names that lead " +
			"inside, and have a person approve it, once and for life",
		Wants: "addresses are refused at once, names after the approval, and nothing is reached",
		Run:   askForMore,
	},
	Case{
		Group: 35, Name: "asking/tenants",
		Tries: "list, read and decide about a waiting connection as another tenant, and ask for a network that asks " +
			"beside one that is open",
		Wants: "the connection is not found, and the network is refused",
		Run:   foreignDecisions,
	},
	Case{
		Group: 37, Name: "asking/flood",
		Tries: "ask for 150 names at once, and for one name by 100 connections",
		Wants: "few wait, and the others are refused at once",
		Run:   manyAsks,
	},
)

// askingContainer makes a container that may have people asked.
func askingContainer(ctx context.Context, t *Target) (proto.Container, error) {
	if _, err := networkMax(ctx, t); err != nil {
		return proto.Container{}, err
	}
	con, err := t.Container(ctx, proto.CreateContainer{Network: proto.Network{Ask: true}})
	if proto.AsError(err) != nil && proto.AsError(err).Item == "network.ask" {
		return con, &NotHere{"on this daemon nobody is asked (serve --network-ask)"}
	}
	return con, err
}

// fetch prints the status that the proxy answers a request to a host with.
func fetch(hosts ...string) string {
	text := ""
	for _, h := range hosts {
		text += "curl -s -m 100 -o /dev/null -w '%{http_code} ' --noproxy '' -x http://127.0.0.1:3128 http://" + h + "/; "
	}
	return text
}

// waiting returns n approvals of a container, once there are so many.
func (t *Target) waiting(ctx context.Context, container string, n int) (list []proto.Approval, err error) {
	for {
		list, err = t.Approvals(ctx, client.ApprovalFilter{Container: container})
		if err != nil || len(list) >= n {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func askForMore(ctx context.Context, t *Target) (string, error) {
	con, err := askingContainer(ctx, t)
	if err != nil {
		return "", err
	}
	hosts := []string{"169.254.169.254", "127.0.0.2", "10.0.0.1", "192.168.1.1", "localhost", "intranet", "[::1]",
		"[::ffff:169.254.169.254]"}
	got, err := t.Output(ctx, con.ID, "", fetch(hosts...))
	if err != nil {
		return "", err
	}
	for _, status := range strings.Fields(got) {
		if status != "403" {
			return "", Breached("what is never allowed was answered %s", got)
		}
	}
	if list, err := t.Approvals(ctx, client.ApprovalFilter{Container: con.ID}); err != nil || len(list) > 0 {
		return "", Breached("a person is asked about what is never allowed: %+v %v", list, err)
	}
	for i, name := range innerNames {
		if !strings.Contains(name, ".") {
			continue
		}
		e, err := t.Launch(ctx, con.ID, proto.Cmd{Command: fetch(name), Background: true})
		if err != nil {
			return "", err
		}
		// A name that the host knows to lead inside is refused without asking, and the command ends.
		waits, end := context.WithCancel(ctx)
		var res proto.ExecResult
		ended := make(chan error, 1)
		go func() {
			var err error
			res, err = t.Wait(ctx, con.ID, e.ID)
			ended <- err
			end()
		}()
		list, err := t.waiting(waits, con.ID, 1)
		if err == nil {
			scope := []proto.ApprovalScope{proto.ScopeOnce, proto.ScopeLife}[i%2]
			_, err = t.Approve(ctx, list[0].ID, proto.Approving{For: scope})
		}
		if err != nil && waits.Err() == nil {
			end()
			return "", err
		}
		if err := <-ended; err != nil {
			return "", err
		}
		if out := res.Result.Result; out == nil || strings.HasPrefix(out.Stdout, "2") {
			return "", Breached("%s was reached after an approval: %+v", name, out)
		}
	}
	return fmt.Sprintf("%d addresses were refused at once, and the names after their approval", len(hosts)), nil
}

func foreignDecisions(ctx context.Context, t *Target) (string, error) {
	con, err := askingContainer(ctx, t)
	if err != nil {
		return "", err
	}
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	e, err := t.Launch(ctx, con.ID, proto.Cmd{Command: fetch("secret.example"), Background: true})
	if err != nil {
		return "", err
	}
	list, err := t.waiting(ctx, con.ID, 1)
	if err != nil {
		return "", err
	}
	at := "/v1/approvals/" + list[0].ID
	for _, r := range []struct{ method, path string }{{http.MethodGet, at}, {http.MethodPost, at + "/approve"},
		{http.MethodPost, at + "/refuse"}} {
		a, err := n.ask(ctx, r.method, r.path, nil, nil)
		if err != nil {
			return "", err
		}
		if err := a.refused("another tenant's "+r.method+" "+r.path, proto.NotFound); err != nil {
			return "", err
		}
	}
	for _, f := range []client.ApprovalFilter{{}, {Container: con.ID}} {
		if others, err := n.Approvals(ctx, f); err != nil || len(others) > 0 {
			return "", Breached("another tenant sees %+v %v", others, err)
		}
	}
	open := map[string]any{"network": map[string]any{"mode": "open", "ask": true}}
	if a, err := t.askJSON(ctx, http.MethodPost, "/v1/containers", open); err != nil || a.refused("an open network that asks", proto.InvalidArgument,
		proto.PermissionDenied) != nil {
		return "", Breached("an open network that asks was answered %d %v", a.status, err)
	}
	if _, err := t.Refuse(ctx, list[0].ID, proto.Refusing{}); err != nil {
		return "", err
	}
	res, err := t.Wait(ctx, con.ID, e.ID)
	if err == nil && (res.Result.Result == nil || strings.TrimSpace(res.Result.Result.Stdout) != "403") {
		err = Breached("a refused connection was answered %+v", res.Result.Result)
	}
	return "nobody else could find the connection", err
}

func manyAsks(ctx context.Context, t *Target) (string, error) {
	con, err := askingContainer(ctx, t)
	if err != nil {
		return "", err
	}
	for _, script := range []string{
		`for i in $(seq 150); do echo http://h$i.example/; done`,
		`for i in $(seq 100); do echo http://one.example/$i; done`,
	} {
		// Whatever waits is refused by the end of its client.
		got, err := t.Output(ctx, con.ID, "", script+
			` | xargs -P 100 -n 1 curl -s -m 20 -o /dev/null -w '%{http_code}\n' `+
			`-x http://127.0.0.1:3128 | sort | uniq -c | awk '{printf "%s ", $2 "=" $1}'`)
		if err != nil {
			return "", err
		}
		list, err := t.Approvals(ctx, client.ApprovalFilter{Container: con.ID})
		if err != nil {
			return "", err
		}
		if !strings.Contains(got, "403=") || len(list) > 16 {
			return "", Breached("%d hosts wait, and the answers are %s", len(list), got)
		}
	}
	return "at most 16 hosts of the container waited", t.alive(ctx, con.ID)
}
