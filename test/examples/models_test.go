package examples_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/scripted"
)

// models are the models of the recipes that need one, behind one URL. The script of each is testdata/RECIPE.json, and
// its model has the recipe's name. Below /RECIPE there is that model alone, for clients that list models.
type models struct {
	url string
	by  map[string]*scripted.Server
}

func newModels(t *testing.T) *models {
	t.Helper()
	m := &models{by: map[string]*scripted.Server{}}
	scripts, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		script, err := scripted.Load(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		m.by[strings.TrimSuffix(filepath.Base(path), ".json")] = scripted.New(script)
	}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// ServeHTTP passes a request on to the model that it names.
func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); m.by[name] != nil {
		http.StripPrefix("/"+name, m.by[name]).ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var asked struct{ Model string }
	_ = json.Unmarshal(body, &asked) // what is no JSON names no model
	model := m.by[asked.Model]
	if model == nil {
		http.Error(w, r.Method+" "+r.URL.Path+": no such model: "+asked.Model, http.StatusNotFound)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	model.ServeHTTP(w, r)
}

// check fails the test if the recipe asked its model for anything else than the script has, or not for all of it.
func (m *models) check(t *testing.T, name string) {
	t.Helper()
	model := m.by[name]
	if model == nil {
		return
	}
	if err := model.Err(); err != nil {
		t.Errorf("the model: %v", err)
	}
	if left := model.Left(); left > 0 {
		t.Errorf("the model: %d turns were not played", left)
	}
}
