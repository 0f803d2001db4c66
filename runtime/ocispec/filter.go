package ocispec

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"berth/proto"
)

// newestCall is the highest number of a system call that the filter knows: futex_waitv of Linux 5.16. libseccomp
// 2.5.4, which runc may be built with, knows little more. Without this limit, the filter of runc would depend on its
// libseccomp, and differ from ours. Higher numbers get ENOSYS, and C libraries then use older calls.
const newestCall = 449

// Filter compiles the filter of a class, with which the kernel allows and refuses what it does with runc's. It is for
// amd64.
func Filter(class proto.RuntimeClass) ([]unix.SockFilter, error) {
	program, err := compile(New(Spec{Class: class}).Linux.Seccomp)
	if err != nil {
		return nil, fmt.Errorf("compiling the filter of system calls: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assembling the filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, 0, len(raw))
	for _, i := range raw {
		filter = append(filter, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return filter, nil
}

// compile makes the program of a profile. The library's Policy would do it alone, but not as runc does: it answers
// calls of another architecture by the default, x32 calls by ENOSYS, and unknown numbers by EPERM.
func compile(profile *specs.LinuxSeccomp) ([]bpf.Instruction, error) {
	groups, err := groupsOf(profile.Syscalls)
	if err != nil {
		return nil, err
	}
	const numberAt, archAt = 0, 4            // in struct seccomp_data
	const x32, skipped = 1 << 30, ^uint32(0) // tracers skip a call by -1
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archAt, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(arch.X86_64.ID), SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionKillThread)},
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: newestCall, SkipTrue: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: skipped, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(seccomp.ActionErrno) | uint32(unix.ENOSYS)},
		bpf.RetConstant{Val: uint32(seccomp.ActionKillThread)},
	}
	for _, g := range groups {
		rules, err := g.assemble()
		if err != nil {
			return nil, err
		}
		// The conditions of the group before have replaced the number by an argument.
		program = append(append(program, bpf.LoadAbsolute{Off: numberAt, Size: 4}), rules...)
	}
	rest := actionOf(profile.DefaultAction, profile.DefaultErrnoRet)
	return append(program, bpf.RetConstant{Val: uint32(rest)}), nil
}

// A group is a list of calls with one answer.
type group struct {
	action seccomp.Action
	calls  []seccomp.SyscallWithConditions
}

// assemble makes instructions that expect the call's number. They return the group's answer, or come to their end.
func (g group) assemble() ([]bpf.Instruction, error) {
	p := seccomp.NewProgram()
	match, next := p.NewLabel(), p.NewLabel()
	for i, call := range g.calls {
		call.Assemble(&p, i < len(g.calls)-1, match, next)
	}
	p.SetLabel(match)
	p.Ret(g.action)
	p.SetLabel(next)
	return p.Assemble()
}

// groupsOf translates rules. Calls with conditions come first, because the kernel runs the filter for those each
// time, and remembers which others are always allowed. Each of them is a group of its own: in the library's program,
// the call after one whose conditions have failed is compared with an argument in place of the number.
func groupsOf(rules []specs.LinuxSyscall) (groups []group, err error) {
	type key struct {
		action seccomp.Action
		number uint32
	}
	calls := map[key][]seccomp.ArgumentConditions{} // nil for a call without condition
	for _, rule := range rules {
		conditions, err := conditionsOf(rule.Args)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", rule.Names, err)
		}
		for _, name := range rule.Names {
			number, known := arch.X86_64.SyscallNames[name]
			k := key{actionOf(rule.Action, rule.ErrnoRet), uint32(number)}
			before, met := calls[k]
			switch {
			case !known: // of another architecture
			case len(conditions) == 0:
				calls[k] = nil
			case !met || len(before) > 0:
				calls[k] = append(before, conditions)
			}
		}
	}
	always := map[seccomp.Action][]seccomp.SyscallWithConditions{}
	order := func(a, b key) int {
		return cmp.Or(cmp.Compare(a.action, b.action), cmp.Compare(a.number, b.number))
	}
	for _, k := range slices.SortedFunc(maps.Keys(calls), order) {
		call := seccomp.SyscallWithConditions{Num: k.number, Conditions: calls[k]}
		if len(call.Conditions) > 0 {
			groups = append(groups, group{k.action, []seccomp.SyscallWithConditions{call}})
		} else {
			always[k.action] = append(always[k.action], call)
		}
	}
	for _, action := range slices.Sorted(maps.Keys(always)) {
		groups = append(groups, group{action, always[action]})
	}
	return groups, nil
}

// conditionsOf translates the conditions of one rule, all of which must hold. The library has no comparison of some
// bits with a value. It can test that none of the bits is set, or that a single bit is.
func conditionsOf(args []specs.LinuxSeccompArg) (all seccomp.ArgumentConditions, err error) {
	for _, a := range args {
		c := seccomp.Condition{Argument: uint32(a.Index), Value: a.Value}
		switch {
		case a.Op == specs.OpEqualTo:
			c.Operation = seccomp.Equal
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == 0:
			c.Operation = seccomp.BitsNotSet
		case a.Op == specs.OpMaskedEqual && a.ValueTwo == a.Value && bits.OnesCount64(a.Value) == 1:
			c.Operation = seccomp.BitsSet
		default:
			return nil, fmt.Errorf("cannot compile the condition %s %#x %#x", a.Op, a.Value, a.ValueTwo)
		}
		all = append(all, c)
	}
	return all, nil
}

// actionOf translates an action.
func actionOf(action specs.LinuxSeccompAction, errno *uint) seccomp.Action {
	switch {
	case action == specs.ActAllow:
		return seccomp.ActionAllow
	case action == specs.ActTrace:
		return seccomp.ActionTrace | seccomp.Action(unix.EPERM)
	case errno != nil:
		return seccomp.ActionErrno | seccomp.Action(*errno)
	}
	return seccomp.ActionErrno | seccomp.Action(unix.EPERM)
}
