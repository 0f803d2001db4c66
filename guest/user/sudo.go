package user

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keptBySudo are variables that sudo does not drop: the way to the network and whom to trust there, how many processors
// there are, and what commands get from us.
var keptBySudo = []string{
	"http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT",
	"NODE_EXTRA_CA_CERTS", "DEBIAN_FRONTEND", "OMP_NUM_THREADS", "PYTHON_CPU_COUNT", "BERTH_EXEC_ID", "BERTH_TOOLS",
	"BERTH_TOOLS_TOKEN", "INPUT_DIR", "OUTPUT_DIR", "JOB_DIR", "JOB_ID",
}

// AllowSudo lets the user with that ID become root by sudo, without a password, in the image below root. sudo may be
// installed later. A file is replaced and never opened, since earlier code of the container may have put a FIFO there.
func AllowSudo(root string, uid int) error {
	dir := filepath.Join(root, "etc/sudoers.d")
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file := filepath.Join(dir, "berth")
	fresh := file + ".new" // sudo ignores names with a dot
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o440)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "Defaults env_keep += \"%s\"\n#%d ALL=(ALL:ALL) NOPASSWD: ALL\n",
		strings.Join(keptBySudo, " "), uid)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
