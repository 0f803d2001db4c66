package attack

import "golang.org/x/sys/unix"

// forbiddenHere are the forbidden calls that only this architecture has.
var forbiddenHere = []numbered{
	{"_sysctl", unix.SYS__SYSCTL}, {"create_module", unix.SYS_CREATE_MODULE},
	{"get_kernel_syms", unix.SYS_GET_KERNEL_SYMS}, {"ioperm", unix.SYS_IOPERM},
	{"iopl", unix.SYS_IOPL}, {"modify_ldt", unix.SYS_MODIFY_LDT}, {"nfsservctl", unix.SYS_NFSSERVCTL},
	{"query_module", unix.SYS_QUERY_MODULE},
	{"sysfs", unix.SYS_SYSFS}, {"uselib", unix.SYS_USELIB}, {"ustat", unix.SYS_USTAT},
}

// int80 makes a call through the entry point of 32-bit programs.
var int80 = callInt80

// callInt80 is implemented in syscalls_amd64.s.
func callInt80(number, a, b, c uintptr) uintptr
