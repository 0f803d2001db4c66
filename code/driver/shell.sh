exec 3<&0 </dev/null # requests come on descriptor 3
__berth_put() { printf '\036%s %s %d\n%s' "$__berth_nonce" "$1" "${#2}" "$2"; }
__berth_end() {
	trap '' INT
	[[ $__berth_nonce ]] || return 0
	if ((__berth_status)); then
		__berth_put e ''
		__berth_put m name && __berth_put d exit
		__berth_put m return_code && __berth_put d "$__berth_status"
		__berth_put m message && __berth_put d "the last command exited with status $__berth_status"
	fi
	__berth_put z '' >&2
	__berth_put z ''
}
# An interrupt continues the outermost loop, which is this one, and so leaves the cell at any point.
declare -A __berth_before=() # what the settings of a cell replaced, as declare prints it
while
	for __berth_name in "${!__berth_before[@]}"; do
		if [[ $__berth_name == / ]]; then
			cd -- "${__berth_before[/]}"
		else
			unset -v "$__berth_name"
			eval "${__berth_before[$__berth_name]}"
		fi
	done
	__berth_before=()
	__berth_end
	read -r __berth_nonce __berth_number __berth_mode __berth_size __berth_count <&3
do
	__berth_status=0
	for ((; __berth_count > 0; __berth_count--)); do
		read -r __berth_name __berth_bytes <&3
		__berth_value=
		((__berth_bytes == 0)) || LC_ALL=C IFS= read -r -d '' -N "$__berth_bytes" __berth_value <&3
		if [[ $__berth_name == / ]]; then
			__berth_before[/]=$PWD
			cd -- "$__berth_value" || __berth_status=1
		else
			__berth_before[$__berth_name]=$(declare -p "$__berth_name" 2>/dev/null)
			export "$__berth_name=$__berth_value"
		fi
	done
	LC_ALL=C IFS= read -r -d '' -N "$__berth_size" __berth_code <&3
	if [[ $__berth_mode == once ]]; then
		exec bash -c "$__berth_code" 3<&-
	fi
	((__berth_status)) && continue # there is no such directory
	__berth_status=130
	trap 'continue 1000' INT
	eval "$__berth_code" 3<&-
	__berth_status=$?
done
