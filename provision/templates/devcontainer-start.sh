@if cuda@
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then ~/.gpuenv/bin/gpuenv verify @sh:env@ --quick; else ~/.gpuenv/bin/gpuenv verify @sh:env@ --device cpu; fi
@end@
@if not cuda@
~/.gpuenv/bin/gpuenv verify @sh:env@ --device cpu
@end@
