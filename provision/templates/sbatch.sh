#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
@if cuda@
#SBATCH --gres=gpu:@gpus@
@end@
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.log
@raw:head@
#
# sbatch train.sbatch                    (command-line options override the options below)
@if cuda@
# GPUENV_ENV=/path/of/the/environment sbatch --gres=gpu:1 train.sbatch --epochs 10
@end@
@if not cuda@
# GPUENV_ENV=/path/of/the/environment sbatch train.sbatch --epochs 10
@end@
set -euo pipefail

env="${GPUENV_ENV:-@double:env@}"
@if cuda@
# If the driver is broken, the GPU is full or the GPU model is different, the job ends here and prints the cause.
gpuenv verify "$env" --quick
@end@
@if not cuda@
# If the framework cannot be imported or returns wrong results on this node, the job ends here.
gpuenv verify "$env" --device cpu
@end@
# Runs one task. gpuenv run removes library paths of the node's modules that would override the environment's libraries.
srun gpuenv run "$env" -- python train.py "$@"
