package main

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"berth/daemon"
	"berth/daemon/settings"
)

// defaultConfig is the file that `berth serve` reads if it exists.
const defaultConfig = "/etc/berth/berth.toml"

// A configFile is the flag --config.
type configFile struct{ name string }

func (c *configFile) addFlag(f *pflag.FlagSet) {
	f.StringVar(&c.name, "config", "", "configuration file, also BERTH_CONFIG (default "+defaultConfig+" if it "+
		"exists); an empty name reads none")
}

// path returns the file to read: that of the flag, of the environment, or the default one if it exists. "" is none.
func (c *configFile) path(f *pflag.FlagSet) string {
	if f.Changed("config") {
		return c.name
	}
	if name, ok := os.LookupEnv("BERTH_CONFIG"); ok {
		return name
	}
	if _, err := os.Stat(defaultConfig); err != nil {
		return ""
	}
	return defaultConfig
}

// inputs are what the configuration is made of.
type inputs struct {
	file        string          // "": none
	environment settings.Values // from variables
	given       settings.Values // from flags

	environFaults []*settings.Fault
}

// readInputs takes in the environment and the flags that were given.
func readInputs(file string, o *options) inputs {
	in := inputs{file: file, given: settings.Given(o.flags)}
	in.environment, in.environFaults = settings.FromEnvironment(os.Environ(), o.flags)
	return in
}

// load reads the file and puts the inputs together. Its error joins all faults.
//
// A check ends with its first fault. So load takes the value out that a fault names, and checks again.
func load(in inputs) (*options, daemon.Config, error) {
	var fromFile settings.Values
	faults := in.environFaults
	if in.file != "" {
		var wrong []*settings.Fault
		fromFile, wrong = settings.ReadFile(in.file, newOptions().flags)
		faults = append(wrong, faults...)
	}
	layers := []settings.Values{maps.Clone(fromFile), maps.Clone(in.environment), maps.Clone(in.given)}
	without := func(key string) {
		for _, layer := range layers {
			delete(layer, key)
		}
	}
	o, wrong := apply(layers)
	for _, f := range wrong {
		without(f.Key)
	}
	var errs []error
	for _, f := range append(faults, wrong...) {
		errs = append(errs, f)
	}
	cfg, err := o.config()
	for err != nil {
		fault, key := settings.FaultOf(err, o.from)
		if fault != nil {
			err = fault
		}
		// Without what a fault of the text took away, a check may miss it: that is no fault of the operator.
		if _, set := o.from[key]; !set && len(errs) > 0 {
			break
		}
		errs = append(errs, err)
		if _, set := o.from[key]; !set {
			break
		}
		without(key)
		o, _ = apply(layers)
		cfg, err = o.config()
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(lineOf(a), lineOf(b)) })
	return o, cfg, errors.Join(errs...)
}

// lineOf returns the line of the file that an error is about. All others come after the file's.
func lineOf(err error) int {
	if f, ok := errors.AsType[*settings.Fault](err); ok && f.Source.Kind == settings.File {
		return f.Source.Line
	}
	return math.MaxInt
}

// apply makes options of layers.
func apply(layers []settings.Values) (o *options, faults []*settings.Fault) {
	o = newOptions()
	o.from, faults = settings.Apply(o.flags, layers...)
	return o, faults
}
