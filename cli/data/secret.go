package data

import (
	"cmp"
	"os"
	"strings"

	"berth/cli/app"
	"berth/proto"
)

// readSecrets reads the secrets that --secret names. They stay in memory, since a build that begins anew sends them
// again.
func readSecrets(list []string) (map[string][]byte, error) {
	secrets := map[string][]byte{}
	for _, text := range list {
		s, err := parseSecret(text)
		if err != nil {
			return nil, err
		}
		if _, again := secrets[s.id]; again {
			return nil, proto.Errorf(proto.InvalidArgument, "", "secret", "there are two secrets with the ID %q", s.id)
		}
		if secrets[s.id], err = s.read(); err != nil {
			return nil, err
		}
		if err := proto.CheckBuildSecrets(secrets); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}

// A secretFlag says where a secret comes from. With neither a file nor a variable it is the variable of its ID, or else
// the file of that name.
type secretFlag struct{ id, file, env string }

// parseSecret reads one value of --secret, in the form of docker build.
func parseSecret(text string) (s secretFlag, err error) {
	bad := func(why string) error {
		return proto.Errorf(proto.InvalidArgument, "", "secret", "--secret %q %s; write id=NAME, id=NAME,src=FILE or "+
			"id=NAME,env=VAR", text, why)
	}
	kind := ""
	for field := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(field, "=")
		if !ok || value == "" {
			return s, bad("has the field " + field + " without a value")
		}
		switch key {
		case "id":
			s.id = value
		case "src", "source":
			s.file = value
		case "env":
			s.env = value
		case "type":
			kind = value
		default:
			return s, bad("has the unknown field " + key)
		}
	}
	switch {
	case s.id == "":
		return s, bad("has no id")
	case kind != "" && kind != "file" && kind != "env":
		return s, bad("has an unknown type")
	case s.file != "" && s.env != "":
		return s, bad("names a file and a variable")
	case kind == "env" && s.env == "": // where src is the name of the variable
		s.file, s.env = "", cmp.Or(s.file, s.id)
	}
	return s, nil
}

// read reads the secret.
func (s secretFlag) read() ([]byte, error) {
	name, set := s.env, s.env != ""
	if !set && s.file == "" {
		name = s.id
		_, set = os.LookupEnv(name)
	}
	if !set {
		return app.ReadInput(cmp.Or(s.file, s.id), proto.MaxBuildSecretBytes)
	}
	value, ok := os.LookupEnv(name)
	if !ok {
		return nil, proto.Errorf(proto.InvalidArgument, "", s.id, "the secret %s is to be the variable %s, which is "+
			"not set; set it, or give a file with src=", s.id, name)
	}
	return []byte(value), nil
}
