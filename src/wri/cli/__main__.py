from wri.cli import main

main()
