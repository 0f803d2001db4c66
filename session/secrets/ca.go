package secrets

import (
	"io"
	"maps"

	"berth/proto"
)

// CA files in a container: the proxy's CA alone, and the proxy's CA with those that the image trusts.
const (
	authorityFile = "/etc/ssl/berth-proxy.pem"
	trustFile     = "/etc/ssl/berth-trust.pem"
)

// caVariables tell programs which CA file to use. OpenSSL, Go and others read the first one. Node adds its file to
// the CAs that it has.
var caVariables = map[string]string{
	"SSL_CERT_FILE": trustFile, "CURL_CA_BUNDLE": trustFile, "REQUESTS_CA_BUNDLE": trustFile, "PIP_CERT": trustFile,
	"GIT_SSL_CAINFO": trustFile,
	"AWS_CA_BUNDLE":  trustFile, "DENO_CERT": trustFile, "NODE_EXTRA_CA_CERTS": authorityFile,
}

// AddCAVariables adds these variables to an environment, except those it has.
func AddCAVariables(env map[string]string) {
	said := maps.Clone(env)
	maps.Copy(env, caVariables)
	maps.Copy(env, said)
}

// imageCAFiles are the CA files of images, by distribution.
var imageCAFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// maxCABytes bounds such a file, in bytes. The usual one has 250 kB.
const maxCABytes = 4 << 20

// InstallCA makes the container of a new guest trust the proxy's CA, beside the CAs of its image. The image's own
// file gets the CA too, for programs that read nothing else. read and write work on files of the container, as root;
// read opens at most that many bytes.
func InstallCA(authority []byte, read func(path string, most int64) (io.ReadCloser, error),
	write func(path string, text []byte) error) error {
	file, all, err := readImageCA(read)
	if err != nil {
		return err
	}
	all = append(append(all, '\n'), authority...)
	files := map[string][]byte{authorityFile: authority, trustFile: all}
	if file != "" {
		files[file] = all
	}
	for path, text := range files {
		if err := write(path, text); err != nil {
			return err
		}
	}
	return nil
}

// readImageCA reads the CA file of the image. file is "" if the image has none.
func readImageCA(read func(string, int64) (io.ReadCloser, error)) (file string, text []byte, err error) {
	for _, path := range imageCAFiles {
		r, err := read(path, maxCABytes)
		if proto.CodeOf(err) == proto.NotFound {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		defer r.Close()
		text, err = io.ReadAll(r)
		return path, text, err
	}
	return "", nil, nil
}
