package native

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/validate"
)

// confined is a confinement in JSON, and asked the same as the core has it.
const confined = `"runtime_class":"gvisor","limits":{"memory_bytes":268435456,"pids":64}`

func asked(t *testing.T, s *site, what string) {
	t.Helper()
	got := s.LastStarted(t)
	if got.RuntimeClass != proto.ClassGVisor || got.Limits.MemoryBytes != 256<<20 || got.Limits.PIDs != 64 {
		t.Errorf("%s was started as %+v", what, got)
	}
}

// Whatever makes a container takes a runtime class and limits for it. A request that names a container cannot ask for
// another confinement than it has.
func TestConfinementOfContainersThatRequestsMake(t *testing.T) {
	s := newSite(t)
	named := s.container(t)
	id := named[strings.LastIndexByte(named, '/')+1:]
	for _, c := range []struct{ path, body string }{
		{"/v1/run_code", `"code":"print(1)"`},
		{"/v1/code_executor", `"language":"python","code":"print(1)"`},
		{"/v1/tool_use", `"type":"tool_use","id":"a","name":"bash","input":{"command":"true"}`},
	} {
		must[any](t, s, "POST", c.path, "{"+c.body+","+confined+"}")
		asked(t, s, c.path)
		if c.path == "/v1/code_executor" {
			continue
		}
		for _, more := range []string{`"runtime_class":"runc"`, `"limits":{"pids":64}`} {
			field := more[1 : strings.IndexByte(more[1:], '"')+1]
			res, text := s.do(t, "POST", c.path, "{"+c.body+","+more+`,"container":"`+id+`"}`)
			if res.StatusCode != http.StatusBadRequest || !strings.Contains(text, field) {
				t.Errorf("%s with a container and %s: %d %s", c.path, more, res.StatusCode, text)
			}
		}
	}
}

// A limit that no container can have is refused with its range, by its name, wherever a request may have one. That goes
// for 0, too: it is not the default.
func TestLimitsThatNoContainerCanHave(t *testing.T) {
	s := newSite(t)
	named := s.container(t)
	created := must[page[proto.Container]](t, s, "GET", "/v1/containers", nil).Data
	probe := strings.TrimSuffix(strings.TrimPrefix(mediaProbe, "{"), "}}") + ","
	limits := reflect.TypeFor[proto.Limits]()
	for i := range limits.NumField() {
		field, _, _ := strings.Cut(limits.Field(i).Tag.Get("json"), ",")
		least := fmt.Sprint(reflect.ValueOf(validate.LeastLimits).Field(i))
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/v1/containers", ``},
			{"POST", "/v1/containers", `"name":"other","existing":true,`},
			{"PATCH", named, ``},
			{"POST", "/v1/exec", `"command":"true","create":{`},
			{"POST", "/v1/run_code", `"code":"print(1)",`},
			{"POST", "/v1/code_executor", `"language":"python","code":"print(1)",`},
			{"POST", "/v1/tool_use", `"type":"tool_use","id":"a","name":"bash","input":{"command":"true"},`},
			{"POST", "/v1/tools", probe},
		} {
			for _, value := range []string{"0", "0.0", "-1", "-9223372036854775808", "1e15"} {
				body := fmt.Sprintf(`{%s"limits":{%q:%s}}`, c.body, field, value) +
					strings.Repeat("}", strings.Count(c.body, "{")-strings.Count(c.body, "}"))
				res, text := s.do(t, c.method, c.path, body)
				if res.StatusCode != http.StatusBadRequest || !strings.Contains(text, "limits."+field) ||
					!strings.Contains(text, "from "+least+" to ") {
					t.Errorf("%s %s %s: %d %s", c.method, c.path, body, res.StatusCode, text)
				}
			}
		}
	}
	if now := must[page[proto.Container]](t, s, "GET", "/v1/containers", nil).Data; len(now) != len(created) {
		t.Errorf("requests that were refused made containers: %d, not %d", len(now), len(created))
	}
}

// A daemon that allows one class refuses the other at each of its doors, and says which it allows.
func TestClassesThatAreNotAllowed(t *testing.T) {
	only := []proto.RuntimeClass{proto.ClassGVisor}
	s := siteWith(t, session.Config{Classes: validate.Classes{Allowed: only}}, func(c *Config) { c.Info.RuntimeClasses = only })
	for path, body := range map[string]string{
		"/v1/containers":    ``,
		"/v1/run_code":      `"code":"1",`,
		"/v1/code_executor": `"language":"python","code":"1",`,
		"/v1/tool_use":      `"type":"tool_use","id":"a","name":"bash","input":{"command":"true"},`,
	} {
		res, text := s.do(t, "POST", path, "{"+body+`"runtime_class":"runc"}`)
		if res.StatusCode != http.StatusForbidden || !strings.Contains(text, `use \"gvisor\"`) {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
	made := must[proto.Container](t, s, "POST", "/v1/containers", "{}")
	if made.RuntimeClass != proto.ClassGVisor {
		t.Errorf("the default is %s", made.RuntimeClass)
	}
	info := must[Info](t, s, "GET", "/v1/info", nil)
	if info.DefaultRuntimeClass != proto.ClassGVisor || len(info.RuntimeClasses) != 1 {
		t.Errorf("%+v", info)
	}
}
