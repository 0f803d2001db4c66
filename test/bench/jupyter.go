package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	jupyterKernel = "Jupyter kernel" // name of the comparator
	hostPython    = "/usr/bin/python3"
)

// asker is a Python client of a kernel. It runs a cell for each line that it reads. It writes the value after the
// reply, the result and the idle status have come. It stops the kernel when its input or the process ends. It does
// not print the kernel's output.
const asker = `
import signal, sys
from jupyter_client import KernelManager

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
manager = KernelManager()
client = manager.client()
try:
    manager.start_kernel(stdout=sys.stderr.fileno())
    client.load_connection_info(manager.get_connection_info())
    client.start_channels()
    client.wait_for_ready(timeout=30)
    for _ in sys.stdin:
        asked, value, idle = client.execute('` + sum11 + `'), None, False
        while not idle:
            message = client.get_iopub_msg(timeout=30)
            kind, content = message['msg_type'], message['content']
            if message['parent_header'].get('msg_id') != asked:
                continue
            if kind == 'execute_result':
                value = content['data']['text/plain']
            idle = kind == 'status' and content['execution_state'] == 'idle'
        while client.get_shell_msg(timeout=30)['parent_header'].get('msg_id') != asked:
            pass
        print(value, flush=True)
finally:
    manager.shutdown_kernel(now=True)
`

// A kernel is a Jupyter kernel with its client.
type kernel struct {
	*service
	ask     *os.File
	answers *os.File
	lines   *bufio.Reader
}

// startKernel starts Debian's Jupyter kernel on the host, since Jupyter has no containers. The kernel and its client
// write below their HOME.
func (b *bench) startKernel(ctx context.Context) (*kernel, error) {
	limited, cancel := context.WithTimeout(ctx, lineMost)
	defer cancel()
	version := said(limited, hostPython, "-I", "-c", "import jupyter_client, ipykernel; print(ipykernel.__version__)")
	switch {
	case limited.Err() != nil:
		return nil, fmt.Errorf("looking for ipykernel: %w", limited.Err())
	case version == "":
		return nil, errors.New("there is no ipykernel; `make setup-bench` installs Debian's python3-ipykernel and " +
			"python3-jupyter-client")
	}
	dir, err := os.MkdirTemp(b.tmp, "jupyter-")
	if err != nil {
		return nil, err
	}
	in, ask, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	answers, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ask.Close())
	}
	defer out.Close()
	cmd := exec.Command(hostPython, "-I", "-c", asker)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.WaitDelay = dir, in, out, lineDrain
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal would prevent its cleanup
	s, err := begin(cmd, environment(dir))
	if err != nil {
		return nil, errors.Join(err, ask.Close(), answers.Close())
	}
	k := &kernel{service: s, ask: ask, answers: answers, lines: bufio.NewReader(answers)}
	if err := k.cell(ctx); err != nil { // the first cell waits until the kernel has started
		k.end()
		return nil, err
	}
	b.parts["ipykernel"] = version
	return k, nil
}

// cell runs a cell and checks its value. It ends a kernel that fails, because its output can be read only then.
func (k *kernel) cell(ctx context.Context) error {
	line, err := k.answer(ctx)
	switch {
	case err != nil:
		k.end()
		return explain(err, hostPython, k.log.Bytes())
	case line != value11+"\n":
		return fmt.Errorf("the value is %q", line)
	}
	return nil
}

// answer returns the line that is written for a cell. It has the time limit of a command line.
func (k *kernel) answer(ctx context.Context) (string, error) {
	if err := k.answers.SetReadDeadline(time.Now().Add(lineMost)); err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { _ = k.answers.SetReadDeadline(time.Now()) })()
	if _, err := io.WriteString(k.ask, "\n"); err != nil {
		return "", err
	}
	line, err := k.lines.ReadString('\n')
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return line, err
}

// end ends the kernel and its client. It may be called twice.
func (k *kernel) end() {
	k.service.end()
	_, _ = k.ask.Close(), k.answers.Close() // the processes have ended
}
