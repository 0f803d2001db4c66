// Package stored checks that records keep the names under which earlier builds have stored them.
//
// Only tests call it. A name that changes makes every record of an earlier build unreadable, and nothing else shows it.
package stored

import (
	"reflect"
	"strings"
	"testing"
)

// CheckNames compares the JSON names of a struct's fields, in their order and separated by spaces, with want.
func CheckNames(t *testing.T, record any, want string) {
	t.Helper()
	typ := reflect.TypeOf(record)
	var names []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "":
			names = append(names, f.Name)
		default:
			names = append(names, name)
		}
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%v is stored with the names\n%s\nearlier builds have\n%s", typ, got, want)
	}
}
