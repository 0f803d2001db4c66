package attack

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"berth/proto"
)

// Group 38: the proxy inserts secrets into requests, and code in the container must not get them.
var _ = register(Case{
	Group: 38, Name: "egress/secrets", Inside: true,
	Tries: "find a network secret in the container that has it, as user and as root: in environments, command " +
		"lines, new files and what the proxy is trusted by; and in what the API tells; ask for secrets with line " +
		"ends, without hosts, and for hosts that are not allowed",
	Wants: "there is a placeholder and no secret, no key of the authority's, and each such wish is refused",
	Run:   networkSecrets,
})

// lookAround prints everything that code in a container can find: environments, command lines, and files that are not
// from its image.
const lookAround = `env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'; cat /etc/ssl/berth-*; ` +
	`find / -xdev -type f -newermt '-1 day' -size -300k -exec cat {} + 2>/dev/null | tr -d '\0' | head -c 600000`

func networkSecrets(ctx context.Context, t *Target) (string, error) {
	mode, err := networkMax(ctx, t)
	if err != nil {
		return "", err
	}
	value := "canary-" + rand.Text()
	n, err := t.refuseSecrets(ctx, value)
	if err != nil {
		return "", err
	}
	req := proto.CreateContainer{Network: proto.Network{Mode: mode}, NetworkSecrets: map[string]proto.NetworkSecret{
		"CANARY": {Value: value, Hosts: []string{"listed.example"}}}}
	if mode == proto.NetworkAllowlist {
		req.Network.Allow = []string{"listed.example"}
	}
	c, err := t.Container(ctx, req)
	if err != nil {
		return "", err
	}
	for _, user := range []string{proto.UserDefault, proto.UserRoot} {
		out, err := t.Output(ctx, c.ID, user, lookAround)
		switch {
		case err != nil:
			return "", err
		case strings.Contains(out, value):
			return "", Breached("%s finds the secret in the container", user)
		case strings.Contains(out, "PRIVATE KEY"):
			return "", Breached("%s finds a private key in the container", user)
		case !strings.Contains(out, "CANARY=berth-secret-"):
			return "", fmt.Errorf("there is no placeholder in the environment: %.300q", out)
		}
	}
	for _, path := range []string{"/v1/containers", "/v1/containers/" + c.ID, "/v1/containers/" + c.ID + "/execs"} {
		got, err := t.ask(ctx, "GET", path, nil, nil)
		if err != nil {
			return "", err
		}
		if strings.Contains(string(got.body), value) {
			return "", Breached("GET %s tells the secret", path)
		}
	}
	return fmt.Sprintf("a placeholder was all that was found; %d wishes were refused", n), nil
}

// refuseSecrets requests secrets for destinations that must be refused.
func (t *Target) refuseSecrets(ctx context.Context, value string) (n int, err error) {
	allowed := map[string]any{"allow": []string{"listed.example"}}
	for _, wish := range []map[string]any{
		{"value": value, "hosts": []string{"listed.example"}, "network": "none"},
		{"value": value, "hosts": []string{"other.example"}},
		{"value": value, "hosts": []string{"a.listed.example"}},
		{"value": value, "hosts": []string{"listed.example:22"}},
		{"value": value, "hosts": []string{"*"}},
		{"value": value, "hosts": []string{"*.example"}},
		{"value": value, "hosts": []string{"listed.example/path"}},
		{"value": value, "hosts": []string{"u:p@listed.example"}},
		{"value": value, "hosts": []string{"listed.example\r\nHost: other.example"}},
		{"value": value, "hosts": []string{}},
		{"value": value + "\r\nX-Other: 1", "hosts": []string{"listed.example"}},
		{"value": value + "\x00", "hosts": []string{"listed.example"}},
		{"value": "abc", "hosts": []string{"listed.example"}},
		{"value": strings.Repeat("a", 1<<20), "hosts": []string{"listed.example"}},
	} {
		network := wish["network"]
		if delete(wish, "network"); network == nil {
			network = allowed
		}
		got, err := t.askJSON(ctx, "POST", "/v1/containers", map[string]any{"network": network,
			"network_secrets": map[string]any{"CANARY": wish}})
		if err != nil {
			return n, err
		}
		if err := got.refused(fmt.Sprintf("a network secret for %q", wish["hosts"]), proto.InvalidArgument,
			proto.TooLarge); err != nil {
			return n, err
		}
		if strings.Contains(string(got.body), value) {
			return n, Breached("the refusal repeats the secret")
		}
		n++
	}
	return n, nil
}
