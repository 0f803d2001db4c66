package limits

import (
	"syscall"

	"berth/guest/wire"
	"berth/proto"

	"golang.org/x/sys/unix"
)

// reachedMemory is the message of the end of a command that was killed for memory.
const reachedMemory = "the container reached its memory limit"

// EndOf translates the guest's exit status. err says that there is none.
func EndOf(x wire.Exit, err error) proto.End {
	if err != nil {
		return proto.End{Reason: proto.EndLost, ReturnCode: -1, Message: "the container ended under it"}
	}
	end := proto.End{Reason: proto.EndExit, ReturnCode: x.Code, Leftover: x.Leftover, CPUSeconds: x.CPU.Seconds(),
		PeakBytes: x.PeakBytes}
	if x.Signal != 0 {
		end.Reason, end.Signal = proto.EndSignal, unix.SignalName(x.Signal)
	}
	if x.OutOfMemory {
		end.Reason, end.Message = proto.EndOutOfMemory, reachedMemory
	}
	return end
}

// OnRequest returns the end of a process that was ended for a reason.
func OnRequest(end proto.End, reason proto.EndReason, why string) proto.End {
	if end.ReturnCode < 0 || end.ReturnCode == 128+int(syscall.SIGKILL) || end.Reason == proto.EndLost {
		end.ReturnCode, end.Signal = 128+int(syscall.SIGKILL), unix.SignalName(syscall.SIGKILL)
	}
	end.Reason, end.Message = reason, why
	return end
}
