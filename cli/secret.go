package cli

import (
	"errors"
	"os"
	"strings"

	"berth/proto"
)

const secretUsage = "secret environment variable of its commands: NAME for its value here, NAME=@FILE for the content of " +
	"a file (may be repeated)"

const secretHostUsage = "NAME=HOST: commands see a placeholder for this secret; the proxy inserts the secret into " +
	"requests to the host (may be repeated)"

// maxSecretFile is more than any secret may have, in bytes.
const maxSecretFile = 1 << 20

// parseSecrets reads NAME and NAME=@FILE. A value on the command line is refused: whoever lists processes would see
// it, and shells write it into their history.
func parseSecrets(list []string) (map[string]string, error) {
	secrets := map[string]string{}
	for _, text := range list {
		name, from, given := strings.Cut(text, "=")
		file, isFile := strings.CutPrefix(from, "@")
		var err error
		switch {
		// The message repeats the name alone: what stands behind it may be the secret.
		case name == "" || given && (!isFile || file == ""):
			return nil, proto.Errorf(proto.InvalidArgument, "", "secret", "--secret %.64q: a secret's value is not "+
				"given on the command line, where others on this machine can see it and shells remember it; "+
				"write --secret NAME to take it from your environment, or --secret NAME=@FILE", name)
		case given:
			secrets[name], err = readSecret(name, file)
		default:
			secrets[name], err = secretFromHere(name)
		}
		if err != nil {
			return nil, err
		}
	}
	return secrets, nil
}

// parseSecretHosts takes those secrets out that go to hosts alone: NAME=HOST, for each host once more.
func parseSecretHosts(list []string, secrets map[string]string) (map[string]proto.NetworkSecret, error) {
	swapped := map[string]proto.NetworkSecret{}
	for _, text := range list {
		name, host, _ := strings.Cut(text, "=")
		value, given := secrets[name]
		if host == "" || !given {
			return nil, proto.Errorf(proto.InvalidArgument, "", "secret-host", "--secret-host %.80q: write "+
				"NAME=HOST, where --secret gives NAME its value", text)
		}
		swapped[name] = proto.NetworkSecret{Value: value, Hosts: append(swapped[name].Hosts, host)}
	}
	for name := range swapped {
		delete(secrets, name)
	}
	return swapped, nil
}

// Unlike --env a missing variable is an error: a command without its secret fails later and less
// clearly.
func secretFromHere(name string) (string, error) {
	// An empty variable counts as set; that an empty value is no secret is the daemon's to say.
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", proto.Errorf(proto.InvalidArgument, "", "secret", "--secret %.64q: there is no such variable in "+
			"your environment", name)
	}
	return value, nil
}

// readSecret reads a file, without the line feed that editors put at its end.
func readSecret(name, file string) (string, error) {
	fi, err := os.Stat(file)
	var data []byte
	// The daemon has the exact bound; this one keeps a mistyped path from reading a disk image
	// into memory.
	if err == nil && fi.Size() > maxSecretFile {
		return "", proto.Errorf(proto.TooLarge, "", "secret", "--secret %.64q: the file is too large for a secret",
			name)
	}
	if err == nil {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return "", proto.Errorf(proto.InvalidArgument, "", "secret", "--secret %.64q: the file cannot be read: %v",
			name, err)
	}
	return strings.TrimSuffix(string(data), "\n"), nil
}
