package flags

import (
	"errors"
	"os"
	"strings"

	"berth/proto"
)

const SecretUsage = "secret environment variable of its commands: NAME for its value here, NAME=@FILE for the " +
	"content of a file (may be repeated)"

const SecretHostUsage = "NAME=HOST: commands see a placeholder for this secret; the proxy inserts the secret into " +
	"requests to the host (may be repeated)"

// maxSecretFile is larger than any secret, in bytes.
const maxSecretFile = 1 << 20

// Secrets parses NAME and NAME=@FILE. It refuses a value on the command line: process lists would show it, and
// shells save it in their history.
func Secrets(list []string) (map[string]string, error) {
	secrets := map[string]string{}
	for _, text := range list {
		name, from, given := strings.Cut(text, "=")
		file, isFile := strings.CutPrefix(from, "@")
		var err error
		switch {
		// The message contains only the name: the rest may be the secret.
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

// SecretHosts moves secrets that are only for hosts out of secrets. An entry is NAME=HOST, repeated for further
// hosts.
func SecretHosts(list []string, secrets map[string]string) (map[string]proto.NetworkSecret, error) {
	placeholders := map[string]proto.NetworkSecret{}
	for _, text := range list {
		name, host, _ := strings.Cut(text, "=")
		value, given := secrets[name]
		if host == "" || !given {
			return nil, proto.Errorf(proto.InvalidArgument, "", "secret-host", "--secret-host %.80q: write "+
				"NAME=HOST, where --secret gives NAME its value", text)
		}
		placeholders[name] = proto.NetworkSecret{Value: value, Hosts: append(placeholders[name].Hosts, host)}
	}
	for name := range placeholders {
		delete(secrets, name)
	}
	return placeholders, nil
}

// secretFromHere reads a secret from the local environment. Unlike --env, a missing variable is an error: a command
// without its secret would fail later and less clearly.
func secretFromHere(name string) (string, error) {
	// An empty variable counts as set. The daemon refuses an empty secret.
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", proto.Errorf(proto.InvalidArgument, "", "secret", "--secret %.64q: there is no such variable in "+
			"your environment", name)
	}
	return value, nil
}

// readSecret reads a secret from a file, without the final line feed that editors add.
func readSecret(name, file string) (string, error) {
	fi, err := os.Stat(file)
	var data []byte
	// The daemon enforces the exact limit. This limit only prevents reading a disk image into memory after a typing
	// mistake.
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
